"""A channel or a track of a file is recognised alone, and options without effect are refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

import asrkit
from tests.conftest import speech
from tests.running import run, talkative_model

Output = pytest.CaptureFixture[str]


@pytest.fixture
def call(tmp_path: Path) -> tuple[Path, Path, list[str]]:
    """A model, a call with a speaker on each of two channels, and both texts."""
    model = talkative_model(tmp_path / "m.safetensors", quiet=0.3)
    voices = [speech(2.0, seed) for seed in (1, 2)]
    soundfile.write(tmp_path / "call.wav", np.stack(voices, 1), 16000, subtype="FLOAT")
    recognizer = asrkit.load(model)
    texts = [recognizer.transcribe(voice).text for voice in voices]
    assert texts[0] != texts[1]
    return model, tmp_path / "call.wav", texts


def test_a_channel_of_a_file(call: tuple[Path, Path, list[str]], capsys: Output) -> None:
    model, path, texts = call
    for number, text in enumerate(texts):
        assert asrkit.load(model).transcribe(path, channel=number).text == text
        samples, rate = soundfile.read(path, dtype="float32")
        assert asrkit.load(model).transcribe(samples, rate, channel=number).text == text
        assert run("decode", "--model", model, "--channel", number, path) == 0
        assert capsys.readouterr().out == text + "\n"
        line = {"id": "u", "audio": path.name, "channel": number}
        path.with_name("x.jsonl").write_text(json.dumps(line))
        assert run("decode", "--model", model, "--manifest", path.with_name("x.jsonl")) == 0
        assert capsys.readouterr().out == text + "\n"


def test_every_channel_by_itself(
    call: tuple[Path, Path, list[str]], tmp_path: Path, capsys: Output
) -> None:
    model, path, texts = call
    options = ["decode", "--model", model, "--channel", "split", path]
    assert run(*options) == 0
    expected = "".join(f"{path}#{number}\t{text}\n" for number, text in enumerate(texts))
    assert capsys.readouterr().out == expected
    assert run(*options, "--output-dir", tmp_path / "out") == 0
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [
        "call#0.txt", "call#1.txt",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("decode", ["--channel", "2", "FILE"], "has the channels 0 to 1, got channel 2"),
        ("decode", ["--track", "3", "FILE"], "has audio tracks 0 to 0, got track 3"),
        ("decode", ["--channel", "x", "FILE"], "must be mix, split or a whole number from 0 to 63"),
        ("decode", ["--channel", "1", "--manifest", "m.jsonl"], "need files"),
        ("stream", ["--channel", "split", "FILE"], "must be mix or a whole number"),
        ("stream", ["--channel", "1", "-"], "need a file"),
        ("align", ["--channel", "1", "--manifest", "m.jsonl"], "need files"),
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
