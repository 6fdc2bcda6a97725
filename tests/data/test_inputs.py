"""The recordings of a command: files and folders."""

import logging
import sys
from pathlib import Path

import numpy as np
import pytest

from asrkit.data.inputs import file_of, jobs_of
from asrkit.errors import UserError
from tests.conftest import write_manifest, write_wav


def touched(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_folder_equals_its_audio_files_in_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audio = [tmp_path / "a/b/2.FLAC", tmp_path / "a/call.amr", tmp_path / "z.mp4"]
    touched(*reversed(audio), tmp_path / ".hidden.wav", tmp_path / ".cache/x.wav")
    assert jobs_of([str(tmp_path)], None, []) == jobs_of([*map(str, audio)], None, [])
    assert not caplog.messages
    touched(tmp_path / "notes.txt")
    with caplog.at_level(logging.WARNING):
        assert len(jobs_of([str(tmp_path)], None, [])) == len(audio)
    (line,) = caplog.messages
    assert line.endswith(f": 1, {tmp_path / 'notes.txt'}")


def test_manifest_and_folder_without_audio_are_named(tmp_path: Path) -> None:
    touched(tmp_path / "notes.txt")
    left_out: list = []
    paths = ["m.jsonl", str(tmp_path), "later.wav"]
    assert [each.audio for each in jobs_of(paths, None, left_out)] == ["later.wav"]
    assert [str(each) for each in left_out] == [
        "m.jsonl: is a manifest: name it with --manifest",
        f"{tmp_path}: has no file whose name ends like audio",
    ]


def test_ids_of_a_manifest_are_distinct(tmp_path: Path) -> None:
    """Outputs name a recording by its id. The id of a file is its path, which may occur twice."""
    line = {"id": "x", "audio": "a.wav"}
    with pytest.raises(UserError, match=r"m\.jsonl: id 'x' occurs twice"):
        jobs_of([], str(write_manifest(tmp_path / "m.jsonl", line, line)), [])
    assert len(jobs_of(["a.wav", "a.wav"], None, [])) == 2


def test_folder_needs_pyarrow_if_it_has_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for problem in ("is not a folder of shards", "pyarrow not installed: pip install"):
        with pytest.raises(UserError, match=problem):
            jobs_of([], str(tmp_path), [])
        touched(tmp_path / "index.arrow")


def test_folder_that_links_to_itself_ends(tmp_path: Path) -> None:
    touched(tmp_path / "a.wav")
    (tmp_path / "again").symlink_to(tmp_path, target_is_directory=True)
    assert [each.audio for each in jobs_of([str(tmp_path)], None, [])] == [str(tmp_path / "a.wav")]


def test_each_channel_of_a_file_is_a_recording_of_its_speaker(tmp_path: Path) -> None:
    both = str(write_wav(tmp_path / "both.wav", np.zeros((1600, 2), dtype=np.float32)))
    one = str(write_wav(tmp_path / "one.wav", np.zeros(1600, dtype=np.float32)))
    (tmp_path / "damaged.wav").write_bytes(b"RIFF")
    damaged, left_out = str(tmp_path / "damaged.wav"), []
    assert jobs_of([both, damaged, one], None, left_out, "split") == [
        file_of(path, channel=channel, track=None, speaker=f"channel {channel}")
        for path, channel in ((both, 0), (both, 1), (one, 0))
    ]
    assert [each.id for each in left_out] == [damaged]
