"""Samples in memory: mono from channels, and errors for samples of other types and ranges."""

from typing import Any

import numpy as np
import pytest
import torch

from asrkit import audio
from asrkit.audio.samples import apart
from tests.conftest import speech


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
