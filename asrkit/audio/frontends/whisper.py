"""Whisper's log mel features with a fixed floor, in steps of any size."""

import math

import numpy as np

from asrkit.arrays import array_namespace
from asrkit.audio.frontends.base import HOP, WINDOW, Array, times
from asrkit.audio.frontends.nemo import SlaneyFrontend, hann_window


class WhisperFbank(SlaneyFrontend):
    """Log mel features of Whisper (Radford et al. 2022, section 2.2).

    Periodic Hann windows of 25 ms around every 10th ms, the stream's first samples reflected before
    it and zeros after it; power spectrum; triangular filters of equal area from 0 to 8 kHz; and
    (max(log10 x, floor) + 4) / 4. N samples give N // 160 frames.

    Whisper's own floor is 8 below the largest value of the recording, which a stream does not know.

    Args:
        floor: lowest log10 of an energy, -30 to 10.

    Raises:
        ValueError: for a floor outside this range.
    """

    CONSTANTS = ("window", "filters", "waves")
    waves: Array  # (400, 402), cosines and sines of the Fourier transform
    log_scale = 1.0 / (4.0 * math.log(10.0))
    # The reflection begins with the second sample, so it needs one sample more.
    frame_size, fft_size, edge, preemphasis = WINDOW + 1, WINDOW, 1, 0.0

    def __init__(self, num_mels: int = 80, lead_frames: int = 0, floor: float = -6.5) -> None:
        if not -30.0 <= floor <= 10.0:  # float32 has 10^floor and the features
            raise ValueError(f"floor must be -30 to 10, got {floor}")
        self.floor, window = floor, hann_window(periodic=True)
        before, after = WINDOW // 2, WINDOW // 2 - HOP + 1
        super().__init__(num_mels, lead_frames, window, before, after, mirrored=True)
        # A product, because ONNX Runtime's transform of 400 samples is too coarse for an export.
        angles = np.arange(WINDOW)[:, None] * np.arange(WINDOW // 2 + 1)
        radians = angles % WINDOW * (2 * math.pi / WINDOW)
        self.waves = np.concatenate([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)

    def power(self, frames: Array) -> Array:
        parts = times(frames[:, :, :-1] * self.window, self.waves) ** 2  # (B, T, 402)
        half = WINDOW // 2 + 1
        return parts[:, :, :half] + parts[:, :, half:]

    def log(self, mels: Array) -> Array:
        xp = array_namespace(mels)
        return (xp.log10(mels.clip(10.0**self.floor)) + 4.0) / 4.0
