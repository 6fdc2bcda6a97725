"""Samples in memory: mono, what is refused; another rate, the same bits for every split."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from asrkit import audio
from asrkit.audio import Resampler, ResamplerPast
from asrkit.audio import resampler as module
from asrkit.audio.samples import apart
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


def test_mono() -> None:
    stereo = np.stack([speech(0.1, 0), speech(0.1, 1)], axis=1)
    assert np.allclose(audio.mono(stereo), stereo.mean(axis=1))
    assert np.allclose(audio.mono(np.array([-32768, 16384], dtype=np.int16)), [-1.0, 0.5])


@pytest.mark.parametrize("count", [0, 1, 1600])
def test_one_channel_and_channels_apart(count: int) -> None:
    """Also without samples, as the end of a pipe that is cut inside a frame."""
    stereo = np.stack([speech(0.1, 0), speech(0.1, 1)], axis=1)[:count]
    assert np.array_equal(audio.mono(stereo, 1), stereo[:, 1])
    assert np.array_equal(audio.mono(stereo[:, 0], 0), stereo[:, 0])
    assert np.array_equal(apart(stereo), stereo)
    with pytest.raises(audio.AudioError, match="the channels 0 to 1, got channel 2"):
        audio.mono(stereo, 2)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.array([0.0, np.nan, 1.0], dtype=np.float32), "sample 1 is nan"),
        (np.array([np.inf], dtype=np.float32), "sample 0 is inf"),
        (np.zeros(4, dtype=np.int64), "must be a float32 or int16 array, got int64"),
        (np.zeros((2, 16000), dtype=np.float32), "transpose them"),
        (np.zeros((2, 2, 2), dtype=np.float32), r"got shape \(2, 2, 2\)"),
        (np.zeros((5, 0), dtype=np.float32), r"must be \(n, channels\), got \(5, 0\)"),
        (np.array([0.5, -100.5]), "sample 1 is -100.5; .* or pass int16"),
        (np.array([[0.0, 0.0], [1e20, -1e20]]), r"in \[-1, 1\], but sample 1 is 1e\+20"),
        (b"ab" * 10, r"got bytes; np.frombuffer\(data, dtype=np.int16\)"),
        ("x.wav", "got str"),
        (None, "float32 or int16 array, got NoneType"),
        ([[0.0], [0.0, 1.0]], "got list"),
        (torch.zeros(4, requires_grad=True), "got Tensor"),
    ],
)
def test_bad_samples(samples: Any, message: str) -> None:
    with pytest.raises(audio.AudioError, match=message):
        audio.mono(samples)


def test_loud_samples_of_all_that_can_be_taken_for_samples() -> None:
    """Mixes, resampled peaks and recorders of 32 bits go beyond 1."""
    loud = 50 * speech(0.1)
    assert np.array_equal(audio.mono(loud), loud)
    assert audio.mono(np.array([-100.0, 100.0])).tolist() == [-100.0, 100.0]
    assert audio.mono(loud.tolist()).dtype == np.float64
    assert np.array_equal(audio.mono(torch.from_numpy(loud)), loud)
    data = np.array([-32768, 16384], dtype=np.int16).tobytes()
    assert audio.mono(memoryview(data).cast("h")).tolist() == [-1.0, 0.5]
    fixed = np.frombuffer(loud.tobytes(), dtype=np.float32)[::-1]  # torch takes neither
    assert np.array_equal(torch.from_numpy(audio.mono(fixed)), loud[::-1])
