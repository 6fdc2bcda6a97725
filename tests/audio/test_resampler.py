"""Changing the sample rate: the same bits for every split into packets; the filter itself."""

import re
from typing import Any

import numpy as np
import pytest

from asrkit import audio
from asrkit.audio import Resampler, ResamplerPast
from asrkit.audio import resampler as module
from tests.conftest import speech

RATES = [1000, 8000, 11025, 24000, 44100, 96000]


def streamed(
    resampler: Resampler, samples: np.ndarray, past: ResamplerPast, largest: int, seed: int = 0
) -> np.ndarray:
    """The rest of a stream from its past, in random packets."""
    draw, start, pieces = np.random.default_rng(seed), 0, []
    while start < len(samples):
        size = int(draw.integers(0, largest))
        piece, past = resampler.step(past, samples[start : start + size])
        pieces.append(piece)
        start += size
    return np.concatenate([*pieces, resampler.step(past, samples[:0], last=True)[0]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rate", RATES)
def test_packets_change_nothing(rate: int, dtype: str) -> None:
    """Nor do they change the length, and the past does not grow."""
    samples = speech(1.0, rate=rate).astype(dtype)
    resampler = Resampler(rate, dtype=dtype)
    whole, past = resampler.step(resampler.start(), samples, last=True)
    assert whole.dtype == dtype
    assert len(past.samples) * 16000 < rate * (3 * 640 + 400)  # a tile and the filter
    for largest in (rate // 5, 100):
        assert np.array_equal(streamed(resampler, samples, resampler.start(), largest), whole)
    for size in (0, 1, 17, rate // 10 + 17, rate):
        output = audio.resample(samples[:size], rate)
        assert len(output) == int(size * 16000 / rate + 0.5)


def test_a_stream_goes_on_from_its_past_and_from_no_other() -> None:
    samples, resampler = speech(1.0, rate=44100), Resampler(44100)
    head, past = resampler.step(resampler.start(), samples[:12345])
    whole = audio.resample(samples, 44100)
    copy = ResamplerPast(past.samples.copy(), past.taken, past.given)
    rest = streamed(Resampler(44100), samples[12345:], copy, 3000)
    assert np.array_equal(np.concatenate([head, rest]), whole)
    copy.samples[-1] += 1e-3
    assert not np.array_equal(streamed(Resampler(44100), samples[12345:], copy, 3000), rest)
    later = past._replace(taken=past.taken + 1)
    assert not np.array_equal(streamed(Resampler(44100), samples[12345:], later, 3000), rest)


def gain(frequency: float, rate: int, output_rate: int = 16000) -> float:
    """Decibels of a tone after resampling, without the ends; of all that it became."""
    tone = np.sin(2 * np.pi * frequency * np.arange(rate) / rate)
    resampler = Resampler(rate, output_rate, "float64")
    output, _ = resampler.step(resampler.start(), tone, last=True)
    edge = output_rate // 8
    return 10 * np.log10(2 * np.mean(output[edge:-edge] ** 2))


@pytest.mark.parametrize("rate", [24000, 44100])
def test_quality_from_higher_rates(rate: int) -> None:
    """The figures of docs/design.md."""
    for frequency in (100, 1000, 3000, 5000, 7000, 7200):
        assert abs(gain(frequency, rate)) < 0.001
    assert gain(7600, rate) == pytest.approx(-6.0, abs=0.1)
    for frequency in (8000, 8500, 10000, 11000):
        assert gain(frequency, rate) < -100


def test_quality_from_the_telephone() -> None:
    for frequency in (100, 1000, 3000, 3600):
        assert abs(gain(frequency, 8000)) < 0.001
    # What has been mirrored at 4 kHz is removed.
    samples = np.sin(2 * np.pi * 3000 * np.arange(8000) / 8000)
    resampler = Resampler(8000, dtype="float64")
    output, _ = resampler.step(resampler.start(), samples, last=True)
    power = np.abs(np.fft.rfft(output[2000:-2000] * np.hanning(12000))) ** 2
    assert power[4200 * 12000 // 16000 :].sum() < 1e-9 * power.sum()


def test_a_filter_that_is_too_short_lets_through_what_would_alias(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CROSSINGS", 8)
    module.tile_of.cache_clear()
    assert gain(8500, 48000) > -60
    module.tile_of.cache_clear()


def test_output_is_in_time_with_the_input() -> None:
    """A click stays where it is."""
    for rate in (8000, 44100, 48000):
        samples = np.zeros(rate, np.float32)
        samples[rate // 2] = 1.0
        assert np.abs(audio.resample(samples, rate)).argmax() == 8000


@pytest.mark.parametrize(
    "rate", [16, 15999, 10**30, "16000", None, True, 16000.5, float("nan"), float("inf")]
)
def test_bad_rate(rate: Any) -> None:
    message = f"8000, 16000, 44100 or 48000, got {rate!r}"
    with pytest.raises(audio.AudioError, match=re.escape(message)):
        Resampler(rate)
    for whole in (16000.0, np.int64(16000), np.float32(16000)):
        assert repr(Resampler(whole).rate) == "16000"
