"""Synthetic speech: many voices of few synthesizers, the same again, and enough of it."""

import json
import multiprocessing
import os
import select
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.recipes.test_corpora import load_recipe, refuse

SYNTHETIC = load_recipe("synthetic", "speak")

FLITE = """#!/bin/sh
# Speaks half a second for any text but one, at which it fails.
[ "$6" = "bad one" ] && exit 1
cp "$(dirname "$0")/speech.wav" "$8"
"""


@pytest.fixture
def flite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for flite on the search path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    noise = 0.3 * np.random.default_rng(0).standard_normal(8000).clip(-1, 1)
    soundfile.write(folder / "speech.wav", noise, 16000)
    (folder / "flite").write_text(FLITE)
    (folder / "flite").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def prepare(out: Path, *options: object) -> list[dict]:
    arguments = ["--output-dir", out, "--engines", "flite", "--jobs", 1, *options]
    assert SYNTHETIC.main([str(argument) for argument in arguments]) == 0
    return [json.loads(line) for line in (out / "train.jsonl").read_text().splitlines()]


@pytest.mark.usefixtures("flite")
def test_digits(tmp_path: Path) -> None:
    """Enough of them, no two alike, of every voice, and the same on every run."""
    rows = prepare(tmp_path / "a", "--hours", 0.01)
    seconds = sum(row["duration"] for row in rows)
    assert 36 <= seconds < 36 + 20
    assert {row["speaker"] for row in rows} == {f"flite-{v}" for v in SYNTHETIC.VOICES["flite"]}
    assert {len(row["text"].split()) for row in rows} == {1, 2, 3, 4, 5}
    assert len({Path(row["audio"]).read_bytes() for row in rows}) == len(rows)
    again = prepare(tmp_path / "b", "--hours", 0.01)
    for one, other in zip(rows, again, strict=True):
        assert Path(one["audio"]).read_bytes() == Path(other["audio"]).read_bytes()
        samples, rate = soundfile.read(one["audio"])
        assert rate == 16000
        assert 0.01 < np.abs(samples).max() <= 0.98


def test_texts_joined_with_real_speech(
    flite: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Of sentences that a synthesizer cannot speak, none; of the real corpus, all."""
    (tmp_path / "t.txt").write_text("good one\nbad one\n" + "too long " * 20 + "\n")
    real = {"id": "r", "audio": str(flite / "speech.wav"), "duration": 0.5, "text": "yes"}
    (tmp_path / "real.jsonl").write_text(json.dumps(real | {"speaker": "someone"}))
    texts = ["--texts", tmp_path / "t.txt", "--join", tmp_path / "real.jsonl"]
    rows = prepare(tmp_path / "out", *texts, "--hours", 0.0001)
    assert [row["text"] for row in rows] == ["yes", "good one"]
    assert "1 texts left out" in capsys.readouterr().out
    out = ["--output-dir", tmp_path / "out", "--engines", "flite", *texts, "--hours", 1]
    assert "give more --texts" in refuse(SYNTHETIC, out, capsys)


@pytest.mark.usefixtures("flite")
def test_recordings_of_other_texts_are_made_anew(tmp_path: Path) -> None:
    """In the same folder; those of the same text are kept."""
    audio = tmp_path / "out" / "audio" / "synthetic-000000.flac"
    for text, same in (("one", False), ("one", True), ("two", False)):
        (tmp_path / "t.txt").write_text(f"{text}\n")
        before = audio.stat().st_mtime_ns if audio.exists() else 0
        rows = prepare(tmp_path / "out", "--texts", tmp_path / "t.txt", "--hours", 0.0001)
        assert [row["text"] for row in rows] == [text]
        assert (audio.stat().st_mtime_ns == before) is same


@pytest.mark.usefixtures("flite")
@pytest.mark.parametrize("damage", ["", "[]", "null", "[" * 100_000, "without speaker"])
def test_a_recording_whose_note_is_damaged_is_made_anew(tmp_path: Path, damage: str) -> None:
    (tmp_path / "t.txt").write_text("one\n")
    options = ("--texts", tmp_path / "t.txt", "--hours", 0.0001)
    [row] = prepare(tmp_path / "out", *options)
    note = tmp_path / "out" / "audio" / "synthetic-000000.json"
    whole = note.read_text()
    lost = json.dumps(json.loads(whole) | {"speaker": None})
    note.write_text(lost if damage == "without speaker" else damage)
    assert prepare(tmp_path / "out", *options) == [row]
    assert note.read_text() == whole


@pytest.mark.usefixtures("flite")
@pytest.mark.parametrize("data", [b"", bytes(4000)])
def test_a_recording_that_cannot_be_read_is_made_anew(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t.txt").write_text("one\n")
    options = ("--texts", tmp_path / "t.txt", "--hours", 0.0001)
    [row] = prepare(tmp_path / "out", *options)
    whole = Path(row["audio"]).read_bytes()
    Path(row["audio"]).write_bytes(data)
    assert prepare(tmp_path / "out", *options) == [row]
    assert Path(row["audio"]).read_bytes() == whole


def test_no_synthesizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    out = ["--output-dir", tmp_path, "--engines", "flite"]
    assert refuse(SYNTHETIC, out, capsys).endswith("no flite: apt-get install flite")


def test_workers_end_with_a_killed_parent() -> None:
    """The last holder of the pipe's other end is gone."""
    kept, given = os.pipe()
    fork = multiprocessing.get_context("fork")

    def work() -> None:
        with fork.Pool(2, SYNTHETIC.follow_parent) as pool:
            pool.map(abs, range(2))
            os.write(given, b"ready")
            time.sleep(60)

    parent = fork.Process(target=work)
    parent.start()
    os.close(given)
    assert os.read(kept, 5) == b"ready"
    parent.kill()
    parent.join()
    assert select.select([kept], [], [], 20)[0]
    assert os.read(kept, 1) == b""
    os.close(kept)


def test_a_room_keeps_length_and_level() -> None:
    dry = 0.5 * np.sin(np.arange(16000) / 5)
    wet = SYNTHETIC.room(dry, 16000, np.random.default_rng(1))
    assert wet.shape == dry.shape
    assert np.abs(wet).max() <= 0.98
    assert not np.allclose(wet, dry, atol=0.01)
