"""The level over time and the spectrum of a recording, measured block by block."""

import numpy as np

from asrkit.audio import SAMPLE_RATE

FRAME_S = 0.05  # seconds of audio per level
LOUD_FRAMES = 5  # the loudness of a recording is the level of its fifth loudest frame
QUIET_DB, QUIETEST = -30.0, 1e-4  # quiet levels: below the loudness; amplitude in any recording
WINDOW = 1024  # samples of a spectrum
LOWEST_HZ = 200.0  # lowest frequency of speech, above hum
SMOOTHING_HZ = 100.0
# Relative to the strongest frequency. With this bound, 2365 real recordings of three corpora have
# sound up to 6.6 kHz or more. Resampling from 8 kHz leaves lower levels above 5.3 kHz.
EMPTY_DB = -55.0
TOP_HZ = 7700.0  # a good low-pass filter for 16 kHz may begin here


class Sound:
    """Measurements of one recording's mono samples."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.frame = max(1, round(FRAME_S * rate))
        self.rest = np.zeros(0)  # samples of an incomplete frame
        self.waiting = np.zeros(0)  # samples of an incomplete window
        self.levels: list[np.ndarray] = []  # mean squares
        self.spectrum = np.zeros(WINDOW // 2 + 1)
        self.shape = np.hanning(WINDOW)

    def add(self, samples: np.ndarray) -> None:
        """Measure the next samples (n,)."""
        frames, self.rest = whole(np.concatenate([self.rest, samples]), self.frame)
        self.levels.append(np.square(frames - frames.mean(axis=1, keepdims=True)).mean(axis=1))
        windows, self.waiting = whole(np.concatenate([self.waiting, samples]), WINDOW)
        self.spectrum += np.square(np.abs(np.fft.rfft(windows * self.shape, axis=1))).sum(axis=0)

    def quiet(self) -> tuple[float, float]:
        """Return the start and the end in seconds of the longest quiet stretch."""
        levels = np.sqrt(np.concatenate([np.zeros(0), *self.levels]))
        if not len(levels):
            return 0.0, 0.0
        loud = float(np.sort(levels)[-min(LOUD_FRAMES, len(levels))])
        still = levels < max(loud * 10 ** (QUIET_DB / 20), QUIETEST)
        steps = np.flatnonzero(np.diff(still.astype(np.int8), prepend=0, append=0))
        if not len(steps):
            return 0.0, 0.0
        first, last = max(zip(steps[::2], steps[1::2], strict=True), key=lambda s: s[1] - s[0])
        return float(first * self.frame / self.rate), float(last * self.frame / self.rate)

    def highest_hz(self) -> float | None:
        """Return the highest frequency with sound, up to TOP_HZ; None if it cannot be measured."""
        hertz = np.arange(len(self.spectrum)) * self.rate / WINDOW
        width = max(1, round(SMOOTHING_HZ * WINDOW / self.rate))
        smooth = np.convolve(self.spectrum, np.ones(width) / width, "same")
        heard = (hertz >= LOWEST_HZ) & (hertz <= TOP_HZ)
        if self.rate < SAMPLE_RATE or not smooth[heard].max(initial=0.0) > 0.0:
            return None
        there = heard & (smooth >= smooth[heard].max() * 10 ** (EMPTY_DB / 10))
        return float(hertz[there].max())


def whole(samples: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples in rows of `size`, and the rest, which does not fill a row."""
    count = len(samples) // size * size
    return samples[:count].reshape(-1, size), samples[count:]
