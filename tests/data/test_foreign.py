"""Manifests of other toolkits are named with their import; so are keys that are not asrkit's."""

import gzip
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from asrkit.data.checks.measure import read_entries
from asrkit.data.inputs import jobs_of
from asrkit.data.manifest import ManifestError, read_manifest
from asrkit.data.recordings import load_recordings
from tests.conftest import speech, write_manifest, write_wav

PLAIN = {"id": "a", "audio": "x.wav", "text": "no"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("nemo.jsonl", b'{"audio_filepath": "x.wav", "duration": 1.0, "text": "no"}\n'),
        ("array.json", json.dumps([PLAIN, PLAIN]).encode()),
        ("train.parquet", b"PAR1\x15\x04" + bytes(range(256)) * 9),
        ("train.tsv", b"client_id\tpath\tsentence\nc\tx.mp3\tno\n"),
        ("cuts.jsonl.gz", gzip.compress(b'{"id": "c", "type": "MixedCut", "tracks": []}', mtime=0)),
        ("list.txt", b"yes\nno\n"),
        ("shar", b""),
    ],
)
def test_what_is_not_a_manifest_names_the_import(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    if content:
        path.write_bytes(content)
    else:
        path.mkdir()
    for read in (lambda: load_recordings(str(path), []), lambda: jobs_of([], str(path), [])):
        with pytest.raises(ManifestError) as error:
            read()
        assert f"asrkit data import auto {shlex.quote(str(path))} --output DIR" in str(error.value)
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("offset", 1.5, "start"), ("start_time", 1.5, "start"), ("Duration", 1.0, "duration"),
        ("end", 2.5, "duration (end minus start)"), ("TEXT", "no", "text"),
        ("speaker_id", "s", "speaker"), ("sampling_rate", 16000, "sample_rate"),
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
