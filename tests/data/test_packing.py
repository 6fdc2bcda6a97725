"""Shards: what is packed is read as from files, by place; what is wrong is refused or named."""

import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import soundfile

from asrkit.data.inputs import read_recordings
from asrkit.data.manifest import INDEX, LeftOut, ManifestError
from asrkit.data.recordings import load_recordings
from asrkit.data.shards import lossless_form, pack
from asrkit.training.utterances import SpeechDataset
from tests.conftest import read_rows, speech, write_manifest, write_wav
from tests.data.encoding import ENCODE
from tests.running import run

SPEEDS = (0.9, 1.0, 1.1)
LEVEL = speech(1.0) / np.abs(speech(1.0)).max()


def packed(manifest: Path, output: Path) -> list[LeftOut]:
    left_out: list[LeftOut] = []
    pack(read_recordings(str(manifest)), output, 10, left_out)
    return left_out


def test_shards_hold_what_the_files_do(corpus: Path) -> None:
    """Also parts of files, stereo, other rates, a channel and a track, at each speed."""
    stereo = speech(2.0, rate=44100)[:, None] * np.array([1.0, 0.5])
    write_wav(corpus / "stereo.wav", stereo, 44100)
    lines = read_rows(corpus / "train.jsonl")
    part = {"audio": "stereo.wav", "text": "è", "speaker": "s", "start": 0.5, "duration": 1.0}
    one = {"id": "one", "audio": "stereo.wav", "text": "", "channel": 1, "track": 0}
    whole = {"id": "a/b.c" + "é" * 90, "audio": "stereo.wav", "text": "no"}
    path = write_manifest(corpus / "m.jsonl", *lines, {"id": "part", **part}, one, whole)
    output = corpus / "shards"
    assert run("data", "shard", path, "--output", output, "--shard-size", "5") == 0
    files, shards = load_recordings(str(path), []), load_recordings(str(output), [])
    assert [(e.id, e.text, e.speaker) for e in read_recordings(str(output))] == [
        (e.id, e.text, e.speaker) for e in files
    ]
    ours, theirs = (each.at_speeds(SPEEDS) for each in (shards, files))
    assert np.array_equal(ours.durations, theirs.durations)
    assert [each.id for each in ours] == [each.id for each in theirs]
    for place, each in enumerate(ours):
        if not each.id.startswith("part_sp"):  # which begins at another fraction of a sample
            assert np.abs(ours.load(place) - theirs.load(place)).max() < 2**-14, each.id
    with tarfile.open(output / "000002.tar") as tar:  # pairs, as webdataset reads them
        assert tar.getnames()[-2:] == [f"{whole['id']}.wav", f"{whole['id']}.json"]
        assert json.load(tar.extractfile(tar.getnames()[-1]))["text"] == "no"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("samples", "subtype", "suffix"),
    [
        (LEVEL, "PCM_16", "flac"),
        (LEVEL, "PCM_24", "flac"),
        (20.0 * LEVEL, "FLOAT", "wav"),
        (1e-4 * LEVEL, "FLOAT", "wav"),
        (np.repeat(LEVEL[:, None], 16, 1), "PCM_16", "wav"),
    ],
    ids=["16 bits", "24 bits", "20 times full scale", "-80 dBFS", "16 channels"],
)
def test_a_part_of_a_file_keeps_its_samples_in_a_shard(
    samples: np.ndarray, subtype: str, suffix: str, tmp_path: Path
) -> None:
    soundfile.write(tmp_path / "x.wav", samples, 16000, subtype=subtype)
    line = {"id": "u", "audio": "x.wav", "text": "a", "start": 0.25, "duration": 0.5}
    manifest = write_manifest(tmp_path / "x.jsonl", line)
    assert packed(manifest, tmp_path / "shards") == []
    before, after = (load_recordings(str(p), []) for p in (manifest, tmp_path / "shards"))
    expected, _ = soundfile.read(tmp_path / "x.wav", 8000, 4000, dtype="float32", always_2d=True)
    assert np.array_equal(before[0].read()[0], expected)
    assert np.array_equal(after[0].read()[0], before[0].read()[0])
    assert np.array_equal(after.load(0), before.load(0))
    assert lossless_form(before[0].read()[0])["format"].lower() == suffix


def test_other_processes_map_the_same_index(shards: Path, corpus: Path) -> None:
    recordings = load_recordings(str(shards), []).at_speeds(SPEEDS)
    recordings = recordings.chosen(recordings.durations < 1.5)
    sent = pickle.dumps(recordings)
    assert len(sent) < 1000  # not the rows
    again = pickle.loads(sent)
    assert [each.id for each in again] == [each.id for each in recordings]
    assert 5 < len(again) < 30
    for path in shards.iterdir():
        path.unlink()
    shards.rmdir()
    assert packed(corpus / "dev.jsonl", shards) == []
    with pytest.raises(ManifestError, match="differs here from the first rank"):
        pickle.loads(sent)


def test_recordings_of_bad_shards_are_named_in_their_batch(shards: Path) -> None:
    """A missing one, and one that is cut off."""
    recordings = load_recordings(str(shards), [])
    (shards / "000000.tar").unlink()
    content = (shards / "000002.tar").read_bytes()
    (shards / "000002.tar").write_bytes(content[: len(content) // 2])
    batch = SpeechDataset(recordings, ENCODE)[("a", [0, 5, 11])]
    assert (batch.ids, batch.num_bad) == (["train5"], 2)
    reasons = [each.reason for each in batch.left_out]
    assert reasons[0].endswith("000000.tar cannot be read: No such file or directory")
    assert "000002.tar ends before byte " in reasons[1]


@pytest.mark.parametrize("damage", ["cut off", "empty", "text", "other columns"])
def test_a_damaged_index_is_refused(damage: str, shards: Path) -> None:
    path = shards / INDEX
    content = path.read_bytes()
    path.unlink()  # a mapped file must not become shorter
    if damage == "other columns":
        with pyarrow.ipc.new_file(str(path), pyarrow.schema([("id", "string")])):
            pass
    else:
        path.write_bytes({"cut off": content[:-9], "empty": b"", "text": b"{}"}[damage])
    with pytest.raises(ManifestError, match=r"is damaged, or of another version.*pack the shards"):
        load_recordings(str(shards), [])


def test_the_command_shard(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = corpus / "shards"
    (corpus / "audio" / "train3.flac").unlink()
    train = corpus / "train.jsonl"
    assert run("data", "shard", train, "--output", output) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{output}: 11 utterances, 0.00 h in 1 shards; 1 left out\n"
    assert "train3.flac does not exist" in printed.err
    assert run("data", "shard", train, "--output", output) == 2
    assert "exists already" in capsys.readouterr().err
    assert run("data", "shard", train) == run("data", "shard", train, train) == 2
    for path in (corpus / "audio").glob("train*"):
        path.unlink()
    assert run("data", "shard", train, "--output", corpus / "none") == 2
    assert not [path for path in corpus.iterdir() if "none" in path.name or path.suffix == ".part"]
