"""asrkit stream with files and standard input: the same text, on lines and redrawn."""

import io
import json
import sys
import time
from pathlib import Path

import pytest
import soundfile

from tests.conftest import speech
from tests.running import ONE_PASS, run, talkative_model


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
    assert run("stream", *ONE_PASS, wav, "--model", model) == 0
    assert capsys.readouterr().out == expected
    assert run("stream", *ONE_PASS, "--model", model, wav, wav) == 2
    assert "got 2 (asrkit decode takes several files)" in capsys.readouterr().err
    for packet in (1, 37, 1000):
        assert run("stream", *ONE_PASS, "--model", model, wav, "--packet-ms", packet) == 0
        assert capsys.readouterr().out == expected


def test_stream_standard_input(
    model: Path, wav: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("stream", *ONE_PASS, "--model", model, wav) == 0
    expected = capsys.readouterr().out
    raw = soundfile.read(wav, dtype="int16")[0].tobytes() + b"\x01"  # and half a sample

    assert stream_piped(raw, model, monkeypatch) == 0
    assert capsys.readouterr().out == expected


def stream_piped(
    data: bytes, model: Path, monkeypatch: pytest.MonkeyPatch, *options: object
) -> int:
    """The exit status of a stream of what comes on standard input."""

    class Input:
        buffer = io.BytesIO(data)

    monkeypatch.setattr(sys, "stdin", Input())
    return run("stream", *ONE_PASS, "--model", model, "-", *options)


@pytest.mark.parametrize(("rate", "channels"), [(16000, 1), (44100, 2), (8000, 1)])
def test_wav_on_standard_input(
    rate: int, channels: int, model: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As the file itself, with sizes or without; what comes after the samples is no audio."""
    wav = tmp_path / "y.wav"
    soundfile.write(wav, speech(2.0, rate=rate)[:, None].repeat(channels, 1), rate)
    assert run("stream", *ONE_PASS, "--model", model, wav) == 0
    expected = capsys.readouterr().out
    data = wav.read_bytes()
    at = data.index(b"data") + 4
    endless = data[:4] + b"\xff" * 4 + data[8:at] + b"\xff" * 4 + data[at + 4 :]
    tagged = data[:12] + b"LIST\x05\0\0\0hello\0" + data[12:] + b"LIST" + bytes(30_000)
    for piped in (data, endless, tagged):
        assert stream_piped(piped, model, monkeypatch, "--packet-ms", 37) == 0
        assert capsys.readouterr().out == expected
    assert stream_piped(data, model, monkeypatch, "--sample-rate", rate) == 0
    assert capsys.readouterr().out == expected
    assert stream_piped(data, model, monkeypatch, "--sample-rate", 48000) == 2
    assert f"--sample-rate 48000 is not the {rate} Hz of the source" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("mp4", "standard input is MP4, which is not read from a pipe; "),
        ("avi", "standard input is RIFF, but not WAV, which is not read from a pipe; "),
        ("flac", "standard input is FLAC, which is not read from a pipe; "),
        ("w64", "standard input is W64, which is not read from a pipe; "),
        ("float", "samples of 32 bits, format 3, in 1 channels; asrkit stream FILE reads"),
        ("cut", "has a damaged header"),
    ],
)
def test_other_files_on_standard_input(
    kind: str, message: str, model: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    file = io.BytesIO()
    form, subtype = (kind, "PCM_16") if kind in ("flac", "w64") else ("wav", "FLOAT")
    soundfile.write(file, speech(0.5), 16000, format=form, subtype=subtype)
    data = file.getvalue()
    data = {"mp4": b"\0\0\0\x18ftypM4A ", "avi": b"RIFF\0\0\0\0AVI ", "cut": data[:30]}.get(
        kind, data
    )
    assert stream_piped(data, model, monkeypatch) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert len(shown.splitlines()) == 1


def test_json_lines(wav: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The final lines together are what decode gives; partial ones have times as they have."""
    model = talkative_model(tmp_path / "m.safetensors", quiet=0.3)
    options = ["--model", model, "--endpoint-ms", 40, "--format", "jsonl"]
    assert run("decode", *options, wav) == 0
    decoded = json.loads(capsys.readouterr().out)
    assert run("stream", *ONE_PASS, *options, "--packet-ms", 40, wav) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = ["type", "text", "start", "end", "words"]
    assert all([*line][:5] == names for line in lines)
    finals = [line for line in lines if line["type"] == "final"]
    assert {line["context"] for line in finals} == {"640 ms"}
    assert len(finals) > 2
    times = [{key: line[key] for key in ("text", "start", "end", "context")} for line in finals]
    assert times == decoded["segments"]
    spoken = [(line["words"][0]["start"], line["words"][-1]["end"]) for line in finals]
    assert [(line["start"], line["end"]) for line in finals] == spoken
    words = [{**word, "confidence": 0} for line in finals for word in line["words"]]
    assert words == [{**word, "confidence": 0} for word in decoded["words"]]
    partials = [line for line in lines if line["type"] == "partial"]
    assert len(partials) > 2
    for line in partials:
        assert line["text"] == " ".join(word["text"] for word in line["words"])
        words = line["words"]
        if words:
            assert [line["start"], line["end"]] == [words[0]["start"], words[-1]["end"]]
        else:
            assert line["start"] == line["end"] in [0.0, *(each["end"] for each in finals)]


def test_stream_redraws_on_a_terminal(
    model: Path, wav: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert run("stream", *ONE_PASS, "--model", model, wav) == 0
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
    assert run("stream", *ONE_PASS, *options, wav) == 0
    assert capsys.readouterr().out.splitlines() == segments
    assert run("stream", *ONE_PASS, *options, wav, "--postprocess", "builtins:repr") == 0
    assert capsys.readouterr().out.splitlines() == [repr(text) for text in segments]
    (wav.parent / "shouting.py").write_text("def shout(text): return text.upper()\n")
    monkeypatch.chdir(wav.parent)  # where a user keeps such a function
    path = [path for path in sys.path if path]
    monkeypatch.setattr(sys, "path", [*path])
    assert run("stream", *ONE_PASS, *options, wav, "--postprocess", "spelled") == 0
    capsys.readouterr()
    assert sys.path == path
    assert run("stream", *ONE_PASS, *options, wav, "--postprocess", "shouting:shout") == 0
    assert capsys.readouterr().out.splitlines() == [text.upper() for text in segments]
    assert sys.path == [*path, ""]
    assert run("stream", *ONE_PASS, *options, wav, "--partials", "--packet-ms", 40) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("…")] == segments
    assert lines.index(segments[1]) > lines.index(segments[0])
    assert any(line.startswith("… ") for line in lines[lines.index(segments[0]) :])


def test_stream_partials_on_lines(
    model: Path, wav: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("stream", *ONE_PASS, "--model", model, wav, "--partials") == 0
    *partials, final = capsys.readouterr().out.splitlines()
    assert len(partials) > 1
    assert all(line.startswith("… ") for line in partials)
    assert final.startswith(partials[-1].removeprefix("… ").rstrip())


def test_stream_simulates_real_time(model: Path, wav: Path) -> None:
    start = time.monotonic()
    assert run("stream", *ONE_PASS, "--model", model, wav, "--simulate-realtime") == 0
    assert time.monotonic() - start > 1.9


def test_the_final_text_is_of_full_context(
    wav: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default, and as decode and evaluate have it with the same options; live text is not."""
    model = talkative_model(tmp_path / "m.safetensors", quiet=0.3)
    options = ["--model", model, "--chunk-ms", 160, "--endpoint-ms", 400, "--format", "jsonl"]
    assert run("decode", *options, "--second-pass", "full", wav) == 0
    decoded = json.loads(capsys.readouterr().out)
    assert run("stream", *options, wav) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    finals = [line for line in lines if line["type"] == "final"]
    assert {line["context"] for line in finals} == {"full"}
    assert " ".join(line["text"] for line in finals) == decoded["text"]
    assert run("stream", *options, "--second-pass", "off", wav) == 0
    alone = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    partials = [[line for line in each if line["type"] == "partial"] for each in (lines, alone)]
    assert partials[0] == partials[1]
    assert " ".join(line["text"] for line in alone if line["type"] == "final") != decoded["text"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--second-pass", "full"], None),  # nothing is larger, and nothing was asked for
        (["--second-pass", "640"], "larger context than the first pass, full, got 640 ms"),
        (["--second-pass", "off", "--second-search", "greedy"], "has no effect without a second"),
        (["--second-pass", "30"], "--second-pass must be a multiple of 40 ms from 40 to"),
        (["--second-search", "{"], "--second-search must be a kind or YAML"),
    ],
)
def test_second_passes_of_full_context(
    options: list[str], told: str | None, model: Path, wav: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    status = run("stream", "--model", model, "--chunk-ms", "full", *options, wav)
    assert status == (0 if told is None else 2)
    assert (told or "") in capsys.readouterr().err
