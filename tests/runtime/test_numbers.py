"""Odd samples, rates, channels, packets and precisions give one text, or are refused."""

import itertools
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import asrkit
from asrkit.errors import UserError
from asrkit.runtime import Recognizer, Session
from tests.kept.measured import FOLDER
from tests.running import run

SIGNALS = ("noise", "silence", "dc", "square", "nan", "inf", "denormal", "loud", "int16")
RATES = (1, 7, 999, 1000, 7999, 8000, 11025, 16000, 22050, 44100, 48000, 96000, 384000, 768000)
FAST = ("noise", "nan", "square")
SPEECH = [FOLDER / "speech" / f"{name}.flac" for name in ("call", "command", "digits")]


def samples_of(signal: str, shape: tuple[int, int]) -> np.ndarray:
    """Samples (n, channels) of a kind."""
    found = (0.1 * np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
    middle = slice(len(found) // 2, len(found) // 2 + 3)
    if signal in ("nan", "inf"):
        found[middle] = float(signal)
    elif signal == "square":
        found = np.sign(found)
    elif signal == "int16":
        found = (found * 32767).astype(np.int16)
    return found * {"silence": 0, "denormal": 1e-40, "loud": 999}.get(signal, 1) + (
        np.float32(0.9) if signal == "dc" else found.dtype.type(0)
    )


@cache
def recognizer(kind: str) -> Recognizer:
    """A small recogniser, with or without segments, a second pass and prefix beam search."""
    path, ends = FOLDER / "models" / "exported.safetensors", asrkit.Endpointer(pause_ms=100)
    options = {"endpointer": ends, "second_pass": "full", "search": "prefix_beam"}
    return asrkit.load(path, backend="eager", **(options if kind == "segments" else {}))


def problem(kind: str, samples: np.ndarray, rate: int, step: int) -> str:
    """What differs between samples in packets and as a whole, or is not finite."""
    loaded, refused = recognizer(kind), ""
    try:
        whole = loaded.transcribe(samples, rate)
    except UserError as error:
        refused = str(error)
    try:
        session = loaded.start(sample_rate=rate)
        for first in range(0, len(samples), step):
            session.accept(samples[first : first + step])
        found = session.finish()
    except UserError as error:
        return "" if refused else f"refused in packets: {error}"
    if refused:
        return f"accepted in packets: {refused}"
    if found.text != whole.text:
        return f"another text: {found.text!r:.80} in packets, {whole.text!r:.80} as a whole"
    times = [t for word in found.words for t in (word.start, word.end, word.confidence)]
    return "" if np.isfinite(times).all() else "a number of a word is not finite"


def problems(signal: str) -> list[str]:
    """What is wrong with a signal in packets of each size, at each rate, in segments too."""
    found = []
    for (packet, seconds), rate in itertools.product([(1, 0.01), (7, 0.1), (10**6, 0.5)], RATES):
        for channels, kind in ((1, "plain"), (64, "segments")):
            if seconds * rate * channels <= 30_000:
                samples = samples_of(signal, (int(seconds * rate), channels))
                found.append(problem(kind, samples, rate, packet))
    assert len(found) > 40
    return [each for each in found if each]


@pytest.mark.parametrize(
    "signal",
    [pytest.param(each, marks=() if each in FAST else pytest.mark.slow) for each in SIGNALS],
)
def test_odd_samples_give_one_text_or_are_refused(signal: str) -> None:
    assert problems(signal) == []


def test_control_a_packet_that_is_dropped_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    accept = Session.accept

    def careless(self: Session, samples: np.ndarray) -> asrkit.Result:
        return accept(self, samples[:0] if len(samples) == 7 else samples)

    monkeypatch.setattr(Session, "accept", careless)
    assert any("another text" in each for each in problems("noise"))


def test_denormal_numbers_cost_no_time() -> None:
    """In one run, because other processes use the machine."""
    recognizer, seconds = asrkit.load("small-en-alnum", threads=1), []
    noise = 0.1 * np.random.default_rng(0).standard_normal(4 * 16000)
    for scale in (1.0, 1e-40, 1e-38, 0.0):
        session, began = recognizer.start(), time.process_time()
        for packet in np.split((noise * scale).astype(np.float32), 40):
            session.accept(packet)
        session.finish()
        seconds.append(time.process_time() - began)
    assert max(seconds[1:]) < 3 * seconds[0]


def test_a_model_in_float16_gives_the_same_words(tmp_path: Path) -> None:
    small = tmp_path / "small.safetensors"
    assert run("pack", "--model", "small-en-alnum", "--output", small) == 0
    for path in SPEECH:
        text = asrkit.load(small).transcribe(path).text
        assert text == asrkit.load("small-en-alnum").transcribe(path).text != ""
