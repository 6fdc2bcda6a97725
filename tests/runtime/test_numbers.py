"""Odd samples, rates, channels, packets and precisions give one text, or are refused."""

import itertools
import json
import time
from pathlib import Path

import numpy as np
import pytest

import asrkit
from asrkit.runtime import Session
from tests.kept.measured import FOLDER
from tests.running import run

pytest.importorskip("starlette")
from tests.torture import live

FAST = ("noise", "nan", "square")
SPEECH = [FOLDER / "speech" / f"{name}.flac" for name in ("call", "command", "digits")]


def problems(folder: Path, signal: str) -> list[str]:
    """What is wrong with a signal in packets of each size, at each rate, in segments too."""
    found = []
    path = folder / "spec.json"
    for (packet, seconds), rate in itertools.product(
        [(1, 0.01), (7, 0.1), (10**6, 0.5)], live.RATES
    ):
        for channels, kind in ((1, "plain"), (64, "segments")):
            spec = {"signal": signal, "rate": rate, "channels": channels, "seconds": seconds,
                    "packet": packet, "kind": kind}  # fmt: skip
            path.write_text(json.dumps(spec))
            if seconds * rate * channels <= 30_000:
                found.append(live.numbers(path, []))
    assert len(found) > 40
    return [each for each in found if each]


@pytest.mark.parametrize(
    "signal",
    [pytest.param(each, marks=() if each in FAST else pytest.mark.slow) for each in live.SIGNALS],
)
def test_odd_samples_give_one_text_or_are_refused(signal: str, tmp_path: Path) -> None:
    assert problems(tmp_path, signal) == []


def test_control_a_packet_that_is_dropped_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = Session.accept

    def careless(self: Session, samples: np.ndarray) -> asrkit.Result:
        return accept(self, samples[:0] if len(samples) == 7 else samples)

    monkeypatch.setattr(Session, "accept", careless)
    assert any("another text" in each for each in problems(tmp_path, "noise"))


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
