"""Manifests of recognised texts, and of pieces of a recording: they name what was recognised."""

import json
from pathlib import Path

from asrkit.data.manifest import read_manifest
from tests.conftest import speech, write_manifest, write_wav
from tests.running import run, talkative_model


def test_the_channels_of_a_recording_are_lines_of_their_own(tmp_path: Path) -> None:
    """Decoding groups them to one call: without --confident they are one dialogue."""
    write_wav(tmp_path / "a.wav", speech(2.0).repeat(2).reshape(-1, 2))
    rows = [{"id": "a", "audio": "a.wav", "channel": channel} for channel in (0, 1)]
    manifest, output = write_manifest(tmp_path / "new.jsonl", *rows), tmp_path / "p.jsonl"
    options = "--model", talkative_model(tmp_path / "m.safetensors"), "--manifest", manifest
    assert run("decode", *options, "--confident", 0, "--output", output) == 0
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["id"], row["channel"]) for row in found] == [("a-0", 0), ("a-1", 1)]
    assert [each.id for each in read_manifest(output)] == ["a-0", "a-1"]  # as training reads it


def test_pieces_name_the_track_that_was_recognised(tmp_path: Path) -> None:
    """Training would otherwise read the default track with the texts of another one."""
    write_wav(tmp_path / "a.wav", speech(1.0))
    (tmp_path / "a.txt").write_text("one")
    options = "--model", "small-en-alnum", "--output", tmp_path / "a.jsonl", "--track", 0
    assert run("data", "segment", tmp_path / "a.wav", tmp_path / "a.txt", *options) == 1
    (line,) = (tmp_path / "a.left_out.jsonl").read_text().splitlines()
    assert json.loads(line)["track"] == 0
