"""Manifests of other toolkits are named with their import; so are keys that are not asrkit's."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from asrkit.data.checks.measure import read_entries
from asrkit.data.inputs import jobs_of
from asrkit.data.manifest import ManifestError, read_manifest
from asrkit.data.recordings import load_recordings
from tests.conftest import speech, write_manifest, write_wav

RECORDING = {"id": "r", "sources": [], "sampling_rate": 16000, "num_samples": 9, "duration": 1.0}
SUPERVISION = {"id": "s", "recording_id": "r", "start": 0.0, "duration": 1.0, "text": "no"}
PLAIN = {"id": "a", "audio": "x.wav", "text": "no"}

OTHER = "write one JSON object a line with id, audio and text"
FILES: dict[str, tuple[str | bytes, str]] = {
    "nemo.jsonl": ('{"audio_filepath": "x.wav", "duration": 1.0, "text": "no"}\n', "nemo"),
    "wenet.list": ('{"key": "a", "wav": "x.wav", "txt": "no"}', "jsonl"),
    "array.json": (json.dumps([PLAIN, PLAIN]), OTHER),
    "pretty.json": (json.dumps([PLAIN], indent=1), OTHER),
    "train.parquet": (b"PAR1\x15\x04" + bytes(range(256)) * 9, "huggingface"),
    "data.arrow": (b"\xff\xff\xff\xff\x10\0\0\0" + b"\n" * 99, "huggingface"),
    "train.tsv": ("client_id\tpath\tsentence\nc\tx.mp3\tno\n", "table"),
    "train.csv": ("\ufeffwav_filename,wav_filesize,transcript\nx.wav,1,no\n", "table"),
    "metadata.csv": ("LJ001-0001|no|no\nLJ001-0002|a, b|a\n", "table"),
    "wav.scp": ("a x.wav\nb sph2pipe -f wav b.sph |\n", "kaldi"),
    "recordings.jsonl": (json.dumps(RECORDING), "lhotse"),
    "recordings.jsonl.gz": (json.dumps(RECORDING), "lhotse"),
    "supervisions.jsonl.gz": (json.dumps(SUPERVISION), "lhotse"),
    "cuts.jsonl.gz": (json.dumps({"id": "c", "type": "MixedCut", "tracks": []}), "lhotse"),
    "hf.jsonl": (json.dumps({"id": "a", "audio": {"path": "x.wav"}, "text": "no"}), "jsonl"),
    "list.txt": ("yes\nno\n", f"it begins with 'yes': {OTHER}"),
    "m.yaml": ("- id: a\n  audio: x.wav\n", OTHER),
    "a.eaf": ('<?xml version="1.0"?>\n<ANNOTATION_DOCUMENT/>', OTHER),
}


def message(path: Path) -> str:
    """The one error of all that reads a manifest."""
    found = set()
    readers: list[Any] = [
        lambda: load_recordings(str(path), []), lambda: read_entries(str(path), []),
        lambda: jobs_of([], str(path), []),
    ]  # fmt: skip
    if path.is_file():
        readers.append(lambda: list(read_manifest(path)))
    for read in readers:
        with pytest.raises(ManifestError) as error:
            read()
        found.add(str(error.value))
    (text,) = found
    assert "\n" not in text
    assert len(text) < 400
    return text


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_kind_names_its_import(name: str, tmp_path: Path) -> None:
    content, expected = FILES[name]
    raw = content.encode() if isinstance(content, str) else content
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    assert asked(expected) in message(tmp_path / name)


def asked(expected: str) -> str:
    """The advice for a kind, or this text itself."""
    return expected if " " in expected else f"is not a manifest: use asrkit data import {expected} "


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a.wav", "b.wav"], "folder"), (["a.wav", "a.txt", "x.csv"], "folder"),
        (["wav.scp", "text"], "kaldi"), (["dataset_info.json", "data-0.arrow"], "huggingface"),
        (["recordings.jsonl.gz", "supervisions.jsonl.gz"], "lhotse"),
        (["cuts.000000.jsonl.gz", "recording.000000.tar", "cuts.index"], "lhotse"),
        (["train_manifest.json", "audio_0.tar"], "name a list in this folder, such as"),
        (["train.jsonl"], "name a list in this folder, such as"),
        (["a.wav", "metadata.csv"], "name a list in this folder, such as"),
    ],
)  # fmt: skip
def test_a_folder_without_shards_is_named(names: list[str], expected: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"")
    assert asked(expected) in message(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("offset", 1.5, "start"), ("begin", 1.5, "start"), ("start_time", 1.5, "start"),
        ("dur", 1.0, "duration"), ("Duration", 1.0, "duration"),
        ("end", 2.5, "duration (end minus start)"), ("transcript", "no", "text"),
        ("sentence", "no", "text"), ("TEXT", "no", "text"), ("speaker_id", "s", "speaker"),
        ("spk", "s", "speaker"), ("sampling_rate", 16000, "sample_rate"),
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
        assert len(list(read_manifest(path))) == 3
        assert len(load_recordings(str(path), [])) == 3
    assert caplog.text.count("unused keys, with") == 1
    assert "'gender' (2), 'state' (2), 'transcript' (2), 'offset' (2)" in caplog.text
