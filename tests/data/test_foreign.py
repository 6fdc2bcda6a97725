"""Manifests of other toolkits are named for what they are; so are keys that are not asrkit's."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from asrkit.data.checks.measure import read_entries
from asrkit.data.cuts import load_cuts
from asrkit.data.index_writer import can_be_indexed
from asrkit.data.labelled import jobs_of
from asrkit.data.manifest import ManifestError, read_manifest
from tests.conftest import speech, write_manifest, write_wav

RECORDING = {"id": "r", "sources": [], "sampling_rate": 16000, "num_samples": 9, "duration": 1.0}
SUPERVISION = {"id": "s", "recording_id": "r", "start": 0.0, "duration": 1.0, "text": "no"}
PLAIN = {"id": "a", "audio": "x.wav", "text": "no"}

FILES: dict[str, tuple[str | bytes, str]] = {
    "nemo.jsonl": (
        '{"audio_filepath": "x.wav", "duration": 1.0, "text": "no"}\n',
        "a NeMo manifest (keys audio_filepath, duration, text): use asrkit data import nemo ",
    ),
    "wenet.list": ('{"key": "a", "wav": "x.wav", "txt": "no"}', "looks like a WeNet list"),
    "array.json": (json.dumps([PLAIN, PLAIN]), "looks like a JSON array"),
    "pretty.json": (json.dumps([PLAIN], indent=1), "looks like a JSON array"),
    "brain.json": (json.dumps({"a": PLAIN, "b": PLAIN}), "as in SpeechBrain and ESPnet"),
    "brain2.json": (json.dumps({"a": PLAIN}, indent=2), "looks like JSON over several lines"),
    "train.parquet": (b"PAR1\x15\x04" + bytes(range(256)) * 9, "looks like a parquet file"),
    "data.arrow": (b"\xff\xff\xff\xff\x10\0\0\0" + b"\n" * 99, "looks like an Arrow stream"),
    "a.wav": (b"RIFF\x24\0\0\0WAVEfmt ", "looks like an audio file"),
    "a.m4a": (b"\0\0\0\x20ftypM4A ", "looks like an audio file"),
    "x.zip": (b"PK\x03\x04\n\n", "looks like a zip archive"),
    "train.tsv": (
        "client_id\tpath\tsentence\nc\tx.mp3\tno\n",
        "looks like TSV (columns client_id, path, sentence)",
    ),
    "train.csv": ("\ufeffwav_filename,wav_filesize,transcript\nx.wav,1,no\n", "looks like CSV"),
    "metadata.csv": ("LJ001-0001|no|no\nLJ001-0002|a, b|a\n", "looks like a table with |"),
    "wav.scp": ("a x.wav\nb sph2pipe -f wav b.sph |\n", "looks like Kaldi's wav.scp"),
    "text": ("a no yes\nb yes\n", "looks like Kaldi's text"),
    "recordings.jsonl": (json.dumps(RECORDING), "looks like lhotse's recordings"),
    "recordings.jsonl.gz": (json.dumps(RECORDING), "looks like lhotse's recordings"),
    "supervisions.jsonl.gz": (json.dumps(SUPERVISION), "looks like lhotse's supervisions"),
    "hf.jsonl": (
        json.dumps({"id": "a", "audio": {"path": "x.wav"}, "text": "no"}),
        "looks like rows of Hugging Face's datasets",
    ),
    "plain.jsonl.gz": (json.dumps(PLAIN), "looks like a plain manifest, gzipped"),
    "list.txt": ("yes\nno\n", "looks like text and not JSON lines (it begins with 'yes')"),
    "m.yaml": ("- id: a\n  audio: x.wav\n", "looks like YAML"),
    "a.eaf": ('<?xml version="1.0"?>\n<ANNOTATION_DOCUMENT/>', "looks like XML"),
}


def message(path: Path) -> str:
    """The one error of all that reads a manifest."""
    found = set()
    readers: list[Any] = [
        lambda: load_cuts(path, []), lambda: read_entries(str(path), []),
        lambda: can_be_indexed(str(path)),
    ]  # fmt: skip
    if path.is_file():
        readers.append(lambda: list(read_manifest(path, [])))
    for read in readers:
        with pytest.raises(ManifestError) as error:
            read()
        found.add(str(error.value))
    (text,) = found
    assert "\n" not in text
    assert len(text) < 400
    return text


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_kind_is_named(name: str, tmp_path: Path) -> None:
    content, expected = FILES[name]
    raw = content.encode() if isinstance(content, str) else content
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    assert expected in message(tmp_path / name)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            ["a.wav", "b.wav"],
            "2 recordings without a manifest: use asrkit data import folder ",
        ),
        (["wav.scp", "text"], "looks like a data folder of Kaldi"),
        (["dataset_info.json", "data-0.arrow"], "looks like a dataset of Hugging Face"),
        (["recordings.jsonl.gz", "supervisions.jsonl.gz"], "looks like lhotse's recordings"),
        (["train_manifest.json", "audio_0.tar"], "name a manifest in it, such as"),
        (["train.jsonl"], "name a manifest in it, such as"),
    ],
)
def test_a_folder_without_shards_is_named(names: list[str], expected: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"")
    assert expected in message(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("offset", 1.5, "start"), ("begin", 1.5, "start"), ("start_time", 1.5, "start"),
        ("dur", 1.0, "duration"), ("Duration", 1.0, "duration"), ("durration", 1.0, "duration"),
        ("end", 2.5, "duration (end minus start)"), ("transcript", "no", "text"),
        ("sentence", "no", "text"), ("TEXT", "no", "text"), ("speaker_id", "s", "speaker"),
        ("spk", "s", "speaker"), ("sampling_rate", 16000, "sample_rate"), ("strat", 1.0, "start"),
    ],
)  # fmt: skip
def test_a_key_of_another_toolkit_is_refused_with_the_right_one(
    key: str, value: object, name: str, tmp_path: Path
) -> None:
    """Ignored, an offset would put the beginning of the file under the text."""
    path = write_manifest(tmp_path / "m.jsonl", {"id": "a", "audio": "x.wav", key: value})
    with pytest.raises(ManifestError, match=f":1: {key!r} is not a key here: write "):
        jobs_of([], str(path), [])
    findings: list[Any] = []
    read_entries(str(path), findings)
    assert findings[0].message == f"{key!r} is not a key here: write {name}"


def test_other_keys_are_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also those beside the key that they stand for: nobody takes them for it."""
    write_wav(tmp_path / "x.wav", speech(1.0))
    line = PLAIN | {"gender": "f", "state": "Ohio", "transcript": "No.", "offset": None}
    path = write_manifest(tmp_path / "m.jsonl", line, line | {"id": "b"}, PLAIN | {"id": "c"})
    for _ in range(2):
        assert len(list(read_manifest(path, []))) == 3
        assert len(load_cuts(path, [])) == 3
    assert caplog.text.count("unused keys, with") == 1
    assert "'gender' (2), 'state' (2), 'transcript' (2), 'offset' (2)" in caplog.text
