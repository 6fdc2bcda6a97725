"""asrkit stream with files and standard input: the same text, on lines and redrawn."""

import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import soundfile

from tests.conftest import speech, write_wav
from tests.running import ONE_PASS, talkative_model

Shown = Callable[..., str]
STREAM = ("stream", *ONE_PASS)


@pytest.fixture
def quiet(tmp_path: Path) -> Path:
    """A model that likes blanks, so that segments end."""
    return talkative_model(tmp_path / "quiet.safetensors", quiet=0.3)


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], str]:
    """Set standard input; return the source that names it."""

    def set_input(data: bytes) -> str:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        return "-"

    return set_input


def lines_of(text: str, kind: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, text.splitlines()) if line["type"] == kind]


def test_stream_a_file(model: Path, wav: Path, shown: Shown, refused: Shown) -> None:
    expected = shown("decode", "--model", model, wav)
    assert shown(*STREAM, wav, "--model", model) == expected
    said = refused(*STREAM, "--model", model, wav, wav)
    assert "got 2 (asrkit decode takes several files)" in said


@pytest.mark.parametrize(("rate", "channels"), [(16000, 1), (44100, 2), (8000, 1)])
def test_standard_input(
    rate: int, channels: int, model: Path, wav: Path, piped: Callable[[bytes], str],
    shown: Shown, refused: Shown,
) -> None:  # fmt: skip
    """As the file itself."""
    write_wav(wav, speech(2.0, rate=rate)[:, None].repeat(channels, 1), rate)
    expected, data = shown(*STREAM, "--model", model, wav), wav.read_bytes()
    command = [*STREAM, "--model", model]
    assert shown(*command, piped(data)) == expected
    assert shown(*command, piped(data), "--sample-rate", rate) == expected
    said = refused(*command, piped(data), "--sample-rate", 48000)
    assert f"got 48000 for a source of {rate} Hz: leave it out" in said
    if channels == 1:
        raw = soundfile.read(wav, dtype="int16")[0].tobytes() + b"\x01"  # and half a sample
        assert shown(*command, piped(raw), "--sample-rate", rate) == expected


def test_json_lines(wav: Path, quiet: Path, shown: Shown) -> None:
    """The final lines together are what decode gives; partial ones have times as they have."""
    options = ["--model", quiet, "--endpoint-ms", 40, "--format", "jsonl", wav]
    decoded = json.loads(shown("decode", *options))
    out = shown(*STREAM, *options)
    finals, partials = lines_of(out, "final"), lines_of(out, "partial")
    names = ["type", "text", "start", "end", "words"]
    assert all([*line][:5] == names for line in (*finals, *partials))
    assert {line["context"] for line in finals} == {"640 ms"}
    assert len(finals) > 2
    times = [{key: line[key] for key in ("text", "start", "end", "context")} for line in finals]
    assert times == decoded["segments"]
    words = [{**word, "confidence": 0} for line in finals for word in line["words"]]
    assert words == [{**word, "confidence": 0} for word in decoded["words"]]
    assert len(partials) > 2
    for line in (*finals, *partials):
        words = line["words"]
        assert line["text"] == " ".join(word["text"] for word in words)
        if words:
            assert [line["start"], line["end"]] == [words[0]["start"], words[-1]["end"]]
        else:
            assert line["start"] == line["end"] in [0.0, *(each["end"] for each in finals)]


def test_segments_on_lines(
    wav: Path, quiet: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each as soon as it has ended, the same in files and streams, at the speed of speech."""
    options = ["--model", quiet, "--endpoint-ms", 40, wav]
    decoded = json.loads(shown("decode", *options, "--format", "jsonl"))
    segments = [each["text"] for each in decoded["segments"]]
    assert len(segments) == len(set(segments)) > 2
    start = time.monotonic()
    assert shown(*STREAM, *options, "--simulate-realtime").splitlines() == segments
    assert time.monotonic() - start > 1.9
    (wav.parent / "shouting.py").write_text("def shout(text): return text.upper()\n")
    monkeypatch.chdir(wav.parent)  # where a user keeps such a function
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    shouted = shown(*STREAM, *options, "--postprocess", "shouting:shout").splitlines()
    assert shouted == [text.upper() for text in segments]


def test_the_final_text_is_of_full_context(wav: Path, quiet: Path, shown: Shown) -> None:
    """By default, and as decode and evaluate have it with the same options; live text is not."""
    options = ["--model", quiet, "--chunk-ms", 160, "--endpoint-ms", 400, "--format", "jsonl", wav]
    decoded = json.loads(shown("decode", *options, "--second-pass", "full"))
    twice, once = shown("stream", *options), shown(*STREAM, *options)
    assert {line["context"] for line in lines_of(twice, "final")} == {"full"}
    assert " ".join(line["text"] for line in lines_of(twice, "final")) == decoded["text"]
    assert lines_of(twice, "partial") == lines_of(once, "partial")
    assert " ".join(line["text"] for line in lines_of(once, "final")) != decoded["text"]
