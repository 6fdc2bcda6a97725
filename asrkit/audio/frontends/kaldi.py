"""Kaldi's log mel filterbank features, computed in steps of any size."""

import numpy as np

from asrkit.arrays import array_namespace
from asrkit.audio.frontends.base import HOP, NYQUIST, WINDOW, Array, Frontend, MelScale, triangles

FLOOR = 1.1920928955078125e-07  # lowest mel energy: float32's epsilon
INT16_SCALE = 32768.0  # Kaldi computes features from int16 samples
KALDI = MelScale(
    lambda hertz: 1127.0 * array_namespace(hertz).log1p(hertz / 700.0),
    lambda mel: 700.0 * array_namespace(mel).expm1(mel / 1127.0),
)


class Fbank(Frontend):
    """Log mel features, equal to Kaldi's with dither 0.

    25 ms povey windows every 10 ms, each minus its mean; pre-emphasis 0.97; power spectrum;
    triangular mel filters.

    Args:
        low_frequency: start of the first filter, Hz.
        high_frequency: end of the last filter, Hz; 8000 if None. The default of sherpa-onnx is
            7600.
        snip_edges: Kaldi's option. With False, the default of sherpa-onnx, the first frame begins
            120 samples before the stream; these are its first samples in reverse order.

    Raises:
        ValueError: unless the frequencies are a band below 8000 Hz.
    """

    scale, floor = KALDI, FLOOR

    def __init__(
        self,
        num_mels: int = 80,
        lead_frames: int = 0,
        low_frequency: float = 20.0,
        high_frequency: float | None = None,
        snip_edges: bool = True,
    ) -> None:
        low, high = low_frequency, NYQUIST if high_frequency is None else high_frequency
        if not 0.0 <= low < high <= NYQUIST:
            raise ValueError(
                f"low_frequency {low} must be from 0 and below high_frequency {high}, and that at "
                f"most {NYQUIST}"
            )
        window = INT16_SCALE * np.hanning(WINDOW) ** 0.85  # Kaldi's povey window
        before = 0 if snip_edges else (WINDOW - HOP) // 2
        self.low, self.high = low, high
        super().__init__(num_mels, lead_frames, window, before, mirrored=not snip_edges)

    def power(self, frames: Array) -> Array:
        mean = array_namespace(frames).mean(frames, axis=2, keepdims=True)
        return self.spectra(self.emphasized(frames - mean, lead=1))  # the window begins with 0

    def mel_filters(self) -> np.ndarray:
        """Return (257, F) triangular filters of equal width on the mel scale 1127 ln(1 + f/700)."""
        filters = triangles(self.edges(), self.scale.of_hertz)
        filters[-1] = 0.0  # Kaldi leaves the Nyquist bin out
        return filters.astype(np.float32)
