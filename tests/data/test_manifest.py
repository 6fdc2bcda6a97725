"""Manifests: what is read, what is left out by id, what is refused."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from asrkit.audio import AudioError
from asrkit.commands.data_check import default_config
from asrkit.config import ModelConfig
from asrkit.data import manifest
from asrkit.data.dataset import SpeechDataset, TextEncoder
from asrkit.data.manifest import LeftOut, ManifestError, read_manifest
from asrkit.data.recordings import load_recordings
from asrkit.model.head import ctc_frames
from asrkit.training.dataset import fitting
from tests.conftest import speech, write_manifest, write_wav
from tests.data.encoding import ENCODE


def test_paths_are_relative_to_the_manifest(corpus: Path) -> None:
    first = next(read_manifest(corpus / "train.jsonl"))
    assert Path(first.audio) == corpus / "audio" / "train0.flac"
    recordings = load_recordings(str(corpus / "train.jsonl"), [])
    assert len(recordings) == 12
    assert recordings[0].text == "yes no"
    assert recordings[0].duration == 1.0


def test_part_of_a_file_stereo_and_another_rate(tmp_path: Path) -> None:
    stereo = speech(2.0, rate=44100)[:, None].repeat(2, axis=1)
    write_wav(tmp_path / "x.wav", stereo, 44100)
    path = write_manifest(
        tmp_path / "m.jsonl",
        {"id": "whole", "audio": "x.wav", "text": "yes"},
        {"id": "part", "audio": "x.wav", "text": "no", "start": 0.5, "duration": 1.0},
        {"id": "tail", "audio": "x.wav", "text": "no", "start": 1.5, "duration": 9.0},
    )
    recordings = load_recordings(str(path), [])
    lengths = {each.id: len(recordings.load(place)) for place, each in enumerate(recordings)}
    assert lengths == {"whole": 32000, "part": 16000, "tail": 8000}


def test_speed(corpus: Path) -> None:
    recordings = load_recordings(str(corpus / "dev.jsonl"), []).at_speeds([0.9, 1.0, 1.1])
    assert len(recordings) == 9
    assert [each.id for each in recordings][:4] == [
        "dev0_sp0.9",
        "dev0",
        "dev0_sp1.1",
        "dev1_sp0.9",
    ]
    seconds = sorted(len(recordings.load(place)) / 16000 for place in range(3))
    assert seconds == pytest.approx([1 / 1.1, 1.0, 1 / 0.9], abs=1e-3)


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Missing, empty, no audio, no text, unknown letters, too short for its labels."""
    write_wav(tmp_path / "ok.wav", speech(1.0))
    write_wav(tmp_path / "short.wav", speech(0.2))
    (tmp_path / "empty.wav").write_bytes(b"")
    (tmp_path / "text.wav").write_text("no audio")
    bad = [
        ("missing", "yes"),
        ("empty", "yes"),
        ("text", "yes"),
        ("ok", ""),
        ("ok", "yes!"),
        ("short", "yes nono"),
    ]
    utterances = [
        {"id": f"{i}", "audio": f"{name}.wav", "text": text} for i, (name, text) in enumerate(bad)
    ]
    utterances.append({"id": "ok", "audio": "ok.wav", "text": "yes"})
    left_out: list[LeftOut] = []
    path = str(write_manifest(tmp_path / "m.jsonl", *utterances))
    found = load_recordings(path, left_out)
    kept = fitting(found, path, default_config(), left_out, ENCODE)
    assert [each.id for each in kept] == ["ok"]
    reasons = {u.id: u.reason for u in left_out}
    assert "does not exist" in reasons["0"]
    assert "is empty" in reasons["1"]
    assert "is not audio" in reasons["2"]
    assert reasons["3"] == "empty text"
    assert "not in the vocabulary: '!'" in reasons["4"]
    assert reasons["5"] == "too short: 5 encoder frames, but its labels need 8"


def test_equal_letters_need_a_blank_between_them() -> None:
    """Frames of ceil((n-240)/640): 4 labels with one pair of equal ones need 5."""
    assert ENCODE.why_not("noon", 240 + 640 * 5) is None
    assert ENCODE.why_not("noon", 240 + 640 * 4) is not None
    assert ENCODE.why_not("nosy", 240 + 640 * 4) is None


def test_longer_frames_need_more_audio() -> None:
    """Of a network that makes one of 8 feature frames: ceil((n-240)/1280)."""
    network = ModelConfig.model_validate({"subsampling": "conv8"})
    encode = TextEncoder(ENCODE.tokenizer, ENCODE.normalize, network.rate.num_frames, ctc_frames)
    assert encode.why_not("nosy", 240 + 1280 * 3) == (
        "too short: 3 encoder frames, but its labels need 4"
    )
    assert encode.why_not("nosy", 240 + 1280 * 3 + 160) is None
    assert ENCODE.why_not("nosy", 240 + 1280 * 3) is None


def test_a_file_that_breaks_later_is_left_out_of_its_batch(corpus: Path) -> None:
    recordings = load_recordings(str(corpus / "train.jsonl"), [])
    (corpus / "audio" / "train1.flac").write_bytes(b"no longer audio")
    (corpus / "audio" / "train2.flac").unlink()
    with pytest.raises(AudioError, match=r"train2\.flac does not exist$") as error:
        recordings.load(2)
    assert "\n" not in str(error.value)
    batch = SpeechDataset(recordings, ENCODE)[("seed", [0, 1, 2, 3])]
    assert batch.ids == ["train0", "train3"]
    assert [u.id for u in batch.left_out] == ["train1", "train2"]
    assert batch.samples.shape[0] == 2
    nothing = SpeechDataset(recordings, ENCODE)[("seed", [1])]
    assert nothing.ids == []
    assert len(nothing.left_out) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "a"}', ":1: 'audio': field required"),
        ('{"id": 3, "audio": "x"}', ":1: 'id': input should be a valid string, got 3"),
        ('{"id": "a", "audio": "x", "start": -1}', ":1: 'start': input should be greater than or"),
        ('{"id": "a", "audio": "x", "track": 65536}', ":1: 'track': input should be less than"),
        ('{"id": "a", "audio": "x", "duration": "2"}', ":1: 'duration': input should be a valid"),
        ('{"id": "a", "audio": "x", "sample_rate": 0}', ":1: 'sample_rate': input should be"),
        ("{", ":1: not JSON"),
        ("[1]", ":1: input should be a valid dictionary or instance of Recording, got"),
    ],
)
def test_bad_lines(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(text + "\n")
    with pytest.raises(ManifestError, match=message) as error:
        load_recordings(str(tmp_path / "m.jsonl"), [])
    remedy = f"asrkit data check {tmp_path}/m.jsonl --write FILE removes such lines"
    assert (remedy in str(error.value)) == message.startswith(":1:")


def test_what_is_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "latin.jsonl").write_bytes('{"id": "ä"}'.encode("latin-1"))
    (tmp_path / "m.jsonl.gz").write_bytes(b"not gzip")
    (tmp_path / "deep.jsonl").write_text("[" * 100_000)
    (tmp_path / "folder").mkdir()
    for name, message in (
        ("latin.jsonl", ":1: not JSON"),
        ("deep.jsonl", ":1: not JSON: nested too deeply"),
        ("m.jsonl.gz", "m.jsonl.gz is not a gzipped file"),
        ("folder", "is not a folder of shards"),
    ):
        with pytest.raises(ManifestError, match=message):
            load_recordings(str(tmp_path / name), [])


@pytest.mark.parametrize("is_packed", [False, True])
def test_lines_are_bounded(
    is_packed: bool, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few megabytes, gzipped, may hold a line of gigabytes."""
    content = (corpus / "dev.jsonl").read_bytes()
    path = tmp_path / "m.jsonl.gz" if is_packed else tmp_path / "m.jsonl"
    path.write_bytes(gzip.compress(content) if is_packed else content)
    longest = max(map(len, content.splitlines()))
    for most, fits in ((longest + 1, True), (longest // 2, False)):  # the first is a control
        monkeypatch.setattr(manifest, "MAX_LINE", most)
        if fits:
            assert len(list(read_manifest(path))) == 3
            continue
        with pytest.raises(ManifestError, match=f"1: a line of more than {most} bytes"):
            list(read_manifest(path))


def test_empty_lines_are_bounded(tmp_path: Path) -> None:
    """A few megabytes, gzipped, may hold a thousand million of them."""
    path = tmp_path / "m.jsonl.gz"
    for empty, fits in ((manifest.MAX_EMPTY, True), (manifest.MAX_EMPTY + 1, False)):
        path.write_bytes(gzip.compress(b"\n" * empty + b"x"))
        if fits:
            assert [line for _, line in manifest.lines_of(path)] == [b"x"]
            continue
        with pytest.raises(ManifestError, match=f"{empty}: {manifest.MAX_EMPTY} empty lines"):
            list(manifest.lines_of(path))


def test_a_pipe_is_no_manifest(tmp_path: Path) -> None:
    """What was read of it to see what it is would be missing afterwards."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in (tmp_path / "pipe.jsonl", Path("/dev/zero")):
        with pytest.raises(ManifestError, match=f"{name} is not a file"):
            load_recordings(str(name), [])


@pytest.mark.parametrize("key", ["id", "audio", "text", "speaker"])
def test_half_a_character_is_refused(key: str, corpus: Path) -> None:
    """JSON can write what UTF-8 cannot."""
    path, lines = corpus / "dev.jsonl", (corpus / "dev.jsonl").read_text().splitlines()
    values = json.loads(lines[1])
    lines[1] = json.dumps(values | {key: values.get(key, "") + "\ud83d\ude00"})
    path.write_text("\n".join(lines))
    assert len(list(read_manifest(path))) == 3  # a control: both halves are a face
    path.write_text("\n".join(lines).replace("\\ude00", ""))
    with pytest.raises(ManifestError, match=f":2: '{key}': cannot be written as UTF-8"):
        list(read_manifest(path))


def test_missing_and_double(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"none\.jsonl does not exist"):
        load_recordings(str(tmp_path / "none.jsonl"), [])
    for path, advice in ("~/a", "only a shell"), ("https://h/a", "it is a URL"), ("-", "standard"):
        with pytest.raises(ManifestError, match=f"does not exist: {advice}"):
            list(read_manifest(path))
    line = (corpus / "dev.jsonl").read_text().splitlines()[0]
    (corpus / "twice.jsonl").write_text(f"{line}\n{line}\n")
    with pytest.raises(ManifestError, match="id 'dev0' occurs twice"):
        load_recordings(str(corpus / "twice.jsonl"), [])


@pytest.mark.parametrize(
    "keys",
    [{"start": 1e308}, {"duration": 1e9}, {"num_channels": 10**9}, {"sample_rate": 10**9},
     {"id": "x" * 2000}, {"audio": "x" * 5000}, {"text": "x" * 2_000_000}],
)  # fmt: skip
def test_values_that_no_recording_has_are_refused(keys: dict[str, Any], corpus: Path) -> None:
    good = json.loads((corpus / "dev.jsonl").read_text().splitlines()[0])
    path = write_manifest(corpus / "m.jsonl", good, good | {"id": "a"} | keys)
    with pytest.raises(ManifestError, match=f"m.jsonl:2: '{next(iter(keys))}': ") as error:
        list(read_manifest(path))
    assert len(str(error.value)) < 2 * len(str(path)) + 300  # named twice


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_says_the_encoding(encoding: str, corpus: Path) -> None:
    """Manifests that Windows' editors and shells write."""
    path = corpus / "dev.jsonl"
    expected = list(read_manifest(path))
    path.write_bytes(path.read_text("utf-8").encode(encoding))
    assert list(read_manifest(path)) == expected


def test_utf_16_without_a_mark_is_refused_by_name(corpus: Path) -> None:
    path = corpus / "dev.jsonl"
    path.write_bytes(path.read_text().encode("utf-16-le"))
    with pytest.raises(ManifestError, match=r"dev.jsonl:1: not UTF-8; .*iconv -f UTF-16LE"):
        load_recordings(str(path), [])
