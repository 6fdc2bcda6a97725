"""A channel or a track of a file is recognised alone, and options without effect are refused."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

import asrkit
from tests.conftest import speech, write_manifest
from tests.running import ONE_PASS, run, talkative_model

Output = pytest.CaptureFixture[str]
Shown = Callable[..., str]
NAMES = ["channel 0", "channel 1"]


@pytest.fixture
def call(tmp_path: Path) -> tuple[Path, Path, list[str]]:
    """A model, a call with a speaker on each of two channels, and both texts."""
    model = talkative_model(tmp_path / "m.safetensors", quiet=0.3)
    voices = [speech(2.0, seed) for seed in (1, 3)]
    soundfile.write(tmp_path / "call.wav", np.stack(voices, 1), 16000, subtype="FLOAT")
    recognizer = asrkit.load(model)
    texts = [recognizer.transcribe(voice).text for voice in voices]
    assert texts[0] != texts[1]
    return model, tmp_path / "call.wav", texts


def test_a_channel_of_a_file(call: tuple[Path, Path, list[str]], shown: Shown) -> None:
    model, path, texts = call
    recognizer, (samples, rate) = asrkit.load(model), soundfile.read(path, dtype="float32")
    for number, text in enumerate(texts):
        assert recognizer.transcribe(path, channel=number).text == text
        assert recognizer.transcribe(samples, rate, channel=number).text == text
        line = {"id": "u", "audio": path.name, "channel": number}
        manifest = write_manifest(path.with_name("x.jsonl"), line)
        for source in (["--channel", number, path], ["--manifest", manifest]):
            assert shown("decode", "--model", model, *source) == text + "\n"


def test_every_channel_by_itself(
    call: tuple[Path, Path, list[str]], tmp_path: Path, shown: Shown
) -> None:
    """A file of a call has what each channel has alone, times and confidences too."""
    model, path, texts = call
    decode, split = ["decode", "--model", model, path], ["--channel", "split"]
    mixed, *alone = (
        json.loads(shown(*decode, "--format", "jsonl", *channel))
        for channel in ([], ["--channel", 0], ["--channel", 1])
    )
    lines = [*map(json.loads, shown(*decode, *split, "--format", "jsonl").splitlines())]
    assert [line.pop("speaker") for line in lines] == NAMES
    assert lines == alone
    assert [line["text"] for line in lines] == texts
    assert mixed["words"] not in [line["words"] for line in lines]  # control
    dialogue = shown(*decode, *split).splitlines()
    assert {" ".join(line.split()[1:3]) for line in dialogue} == {f"{name}:" for name in NAMES}
    named = [f"{path}\t{line}" for line in dialogue]
    assert shown(*decode, path, *split).splitlines() == [*named, *named]
    shown(*decode, *split, "--format", "srt", "--output-dir", tmp_path / "out")
    assert [each.name for each in (tmp_path / "out").glob("[!.]*")] == ["call.srt"]


STREAM = ("stream", *ONE_PASS, "--channel", "split")


def streamed(text: str) -> list[list[dict[str, Any]]]:
    """The final segments of each channel, without what names the channel."""
    lines = [json.loads(line) for line in text.splitlines()]
    finals = [line for line in lines if line.pop("type") == "final"]
    names = [(line.pop("channel"), line.pop("speaker")) for line in finals]
    assert {*names} == {*enumerate(NAMES)}
    return [[line for line, (each, _) in zip(finals, names, strict=True) if each == channel]
            for channel in range(2)]  # fmt: skip


def test_a_stream_of_each_channel(
    call: tuple[Path, Path, list[str]], tmp_path: Path, shown: Shown,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """From a file and a pipe: what stream makes of each channel alone."""
    model, path, _ = call
    samples = np.rint(soundfile.read(path)[0] * 32767).astype(np.int16)
    soundfile.write(path, samples, 16000)
    options, alone = ["--model", model, "--format", "jsonl"], []
    for channel in range(2):
        text = shown("stream", *ONE_PASS, *options, path, "--channel", channel)
        lines = [json.loads(line) for line in text.splitlines()]
        alone.append([line for line in lines if line.pop("type") == "final"])
    copy = tmp_path / "copy.wav"
    assert streamed(shown(*STREAM, *options, path, "--save-audio", copy)) == alone
    assert np.array_equal(soundfile.read(copy)[0] * 32768, samples)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(path.read_bytes())))
    assert streamed(shown(*STREAM, *options, "-")) == alone
    assert "channel 1: " in shown(*STREAM, *options[:2], path)


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("decode", ["--channel", "2", "FILE"], "has the channels 0 to 1, got channel 2"),
        ("decode", ["--track", "3", "FILE"], "has audio tracks 0 to 0, got track 3"),
        ("decode", ["--channel", "x", "FILE"], "must be split or a whole number from 0, got"),
        ("decode", ["--channel", "1", "--manifest", "m.jsonl"], "no effect with --manifest"),
        ("align", ["--text", "a", "--channel", "split", "FILE"], "must be a whole number"),
        ("stream", ["--channel", "1", "-"], "--channel has no effect without a file"),
        ("stream", ["--channel", "split", "--mic"], "--channel has no effect with --mic"),
        ("align", ["--channel", "1", "--manifest", "m.jsonl"], "no effect with --manifest"),
    ],
)
def test_a_channel_that_is_not_there(
    command: str, options: list[str], message: str,
    call: tuple[Path, Path, list[str]], capsys: Output,
) -> None:  # fmt: skip
    model, path, _ = call
    given = [path if each == "FILE" else each for each in options]
    assert run(command, "--model", model, *given) != 0
    assert message in capsys.readouterr().err
