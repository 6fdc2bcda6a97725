"""asrkit stream: text of files and standard input; of a microphone, with Ctrl-C and notes."""

import io
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

from asrkit.cli.interrupt import until_interrupted
from asrkit.runtime import Result, Session
from tests.conftest import speech, write_wav
from tests.running import ONE_PASS, run, talkative_model

SAID = speech(2.0)


@pytest.fixture
def expected(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The text that decode prints for the samples."""
    soundfile.write(tmp_path / "spoken.wav", SAID, 16000, subtype="FLOAT")
    assert run("decode", "--model", model, tmp_path / "spoken.wav") == 0
    return capsys.readouterr().out


def interrupt() -> bool:
    """Ctrl-C, from the callback's thread, as soon as it is waited for; the device stays."""
    while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
    return False


@pytest.mark.parametrize("packet_ms", [10, 100, 3000])
def test_the_microphone_hears_what_a_file_says(
    packet_ms: int, model: Path, expected: str, sound: ModuleType, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Ctrl-C comes when all is in the queue and nearly nothing is decoded: all of it is decoded."""
    sound.samples, sound.pace, sound.after = SAID, 0.0, interrupt
    path = tmp_path / "recorded.wav"
    monkeypatch.setattr("asrkit.commands.stream.PACKET_MS", packet_ms)
    options = ["--model", model, "--mic", "--save-audio", path]
    assert run("stream", *ONE_PASS, *options) == 0
    shown = capsys.readouterr()
    assert shown.out == expected
    assert shown.err.splitlines()[0] == "listening to 'USB Mic'; Ctrl-C ends"
    assert "lost" not in shown.err
    assert np.array_equal(soundfile.read(path, dtype="float32")[0], SAID)
    assert run("stream", *ONE_PASS, *options) == 2
    assert f"{path} exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "status", "told"),
    [(0, 1, "the microphone 'USB Mic' was disconnected\n"), (1600, 2, "is nan; divide")],
)
def test_text_before_the_end_of_a_microphone_or_an_error_is_shown(
    more: int, status: int, told: str, model: Path, expected: str, sound: ModuleType,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    sound.samples, sound.pace = np.append(SAID, np.full(more, np.nan, np.float32)), 0.0
    assert run("stream", *ONE_PASS, "--model", model, "--mic") == status
    shown = capsys.readouterr()
    assert shown.out == expected
    assert told in shown.err


def test_a_network_slower_than_speech(
    model: Path, sound: ModuleType, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It says so while it happens, and in the end how much was lost."""
    accept = Session.accept

    def slow(self: Session, samples: np.ndarray) -> Result:
        time.sleep(0.01)
        return accept(self, samples)

    monkeypatch.setattr(Session, "accept", slow)
    sound.samples, sound.pace, sound.after = speech(33.0), 0.001, interrupt
    sound.overflows = {7}
    monkeypatch.setattr("asrkit.commands.stream.PACKET_MS", 500)
    assert run("stream", *ONE_PASS, "--model", model, "--mic") == 0
    *told, lost = capsys.readouterr().err.splitlines()
    assert any("s behind: decoding is slower" in line for line in told)
    assert any("audio is being lost: " in line for line in told)
    assert " s of audio or more were lost: decoding, the device or the system" in lost
    assert 1.0 <= float(lost.split()[0]) <= 3.5


def test_list_devices_needs_no_model(
    sound: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as stop:
        run("stream", "--list-devices")
    assert stop.value.code == 0
    assert "> 0 USB Mic, ALSA" in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(SystemExit) as stop:
        run("stream", "--list-devices")
    assert stop.value.code == 2
    assert "asrkit stream: sounddevice not installed" in capsys.readouterr().err


def press(*numbers: int) -> Iterator[int]:
    """Packets 0, 1, …; Ctrl-C while one of these is waited for."""
    for number in range(50):
        if number in numbers:
            signal.raise_signal(signal.SIGINT)
        yield number


def test_ctrl_c_ends_a_source_or_asks_it_to_stop_and_twice_ends_at_once() -> None:
    used: list[int] = []
    asked: list[bool] = []
    until_interrupted(press(3), used.append)  # it cannot stop
    assert used == [0, 1, 2]
    packets = itertools.takewhile(lambda number: number < 7, press(3))
    until_interrupted(packets, used.append, lambda: asked.append(True))
    assert (used[3:], asked) == ([*range(7)], [True])  # also what it still has
    with pytest.raises(KeyboardInterrupt):
        until_interrupted(press(3, 5), used.append, lambda: None)
    assert used[10:] == [*range(5)]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def use(number: int) -> None:
        if number == 5:
            signal.raise_signal(signal.SIGINT)
        asked.append(True)  # a packet in use is finished

    until_interrupted(press(), use)
    assert len(asked) == 1 + 6


def test_twice_is_no_traceback_and_the_text_stays(
    model: Path, expected: str, sound: ModuleType, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def endless(self: Session) -> Result:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError

    monkeypatch.setattr(Session, "finish", endless)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    sound.samples, sound.pace, sound.after = SAID, 0.0, interrupt
    assert run("stream", *ONE_PASS, "--model", model, "--mic") == 130
    shown = capsys.readouterr()
    assert shown.err.endswith("asrkit stream: stopped\n")
    last = shown.out.split("\r\x1b[K")[-1]
    assert expected.startswith(last.rstrip("\n"))
    assert last.endswith("\n")
    assert last.strip()


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
