"""asrkit stream with files and standard input: the same text, on lines and redrawn."""

import io
import json
import sys
import time
from pathlib import Path

import pytest
import soundfile

from tests.commands import run, talkative_model
from tests.conftest import speech


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return talkative_model(tmp_path / "m.safetensors")


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "x.wav", speech(2.0), 16000)
    return tmp_path / "x.wav"


def test_stream_a_file(model: Path, wav: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("decode", "--model", model, wav) == 0
    expected = capsys.readouterr().out
    for packet in (1, 37, 1000):
        assert run("stream", "--model", model, "--file", wav, "--packet-ms", packet) == 0
        assert capsys.readouterr().out == expected


def test_stream_standard_input(
    model: Path, wav: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("stream", "--model", model, "--file", wav) == 0
    expected = capsys.readouterr().out
    raw = soundfile.read(wav, dtype="int16")[0].tobytes() + b"\x01"  # and half a sample

    class Input:
        buffer = io.BytesIO(raw)

    monkeypatch.setattr(sys, "stdin", Input())
    assert run("stream", "--model", model, "-") == 0
    assert capsys.readouterr().out == expected


def test_stream_redraws_on_a_terminal(
    model: Path, wav: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run("stream", "--model", model, "--file", wav) == 0
    shown = capsys.readouterr().out
    lines = shown.split("\r\x1b[K")
    assert len(lines) > 3
    assert shown.endswith("\n")
    assert lines[-1].startswith(lines[-3].rstrip())


def test_segments_on_lines(
    wav: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each as soon as it has ended, the same in files and streams."""
    options = [
        "--model",
        talkative_model(tmp_path / "m.safetensors", quiet=0.3),
        "--endpoint-ms",
        40,
    ]
    assert run("decode", *options, "--format", "jsonl", wav) == 0
    segments = [each["text"] for each in json.loads(capsys.readouterr().out)["segments"]]
    assert len(segments) == len(set(segments)) > 2
    assert run("stream", *options, "--file", wav) == 0
    assert capsys.readouterr().out.splitlines() == segments
    assert run("stream", *options, "--file", wav, "--postprocess", "builtins:repr") == 0
    assert capsys.readouterr().out.splitlines() == [repr(text) for text in segments]
    (wav.parent / "shouting.py").write_text("def shout(text): return text.upper()\n")
    monkeypatch.chdir(wav.parent)  # where a user keeps such a function
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert run("stream", *options, "--file", wav, "--postprocess", "shouting:shout") == 0
    assert capsys.readouterr().out.splitlines() == [text.upper() for text in segments]
    assert run("stream", *options, "--file", wav, "--partials", "--packet-ms", 40) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("…")] == segments
    assert lines.index(segments[1]) > lines.index(segments[0])
    assert any(line.startswith("… ") for line in lines[lines.index(segments[0]) :])


def test_stream_partials_on_lines(
    model: Path, wav: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("stream", "--model", model, "--file", wav, "--partials") == 0
    *partials, final = capsys.readouterr().out.splitlines()
    assert len(partials) > 1
    assert all(line.startswith("… ") for line in partials)
    assert final.startswith(partials[-1].removeprefix("… ").rstrip())


def test_stream_simulates_real_time(model: Path, wav: Path) -> None:
    start = time.monotonic()
    assert run("stream", "--model", model, "--file", wav, "--simulate-realtime") == 0
    assert time.monotonic() - start > 1.9
