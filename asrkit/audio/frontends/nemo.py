"""NeMo's log mel features and sherpa-onnx's version of them, in steps of any size.

Both have the filters of Slaney's Auditory Toolbox.
"""

import math

import numpy as np

from asrkit.arrays import array_namespace
from asrkit.audio.frontends.base import FFT_SIZE, HOP, WINDOW, Array, Frontend, MelScale, triangles

BEND = 1000.0  # Hz; the scale is linear below, 3 mel for 200 Hz, and logarithmic above
BEND_MEL = 15.0
STEP = math.log(6.4) / 27.0  # logarithm of a mel above


def mel(hertz: Array) -> Array:
    xp = array_namespace(hertz)
    above = BEND_MEL + xp.log(xp.clip(hertz, min=BEND) / BEND) / STEP
    return xp.where(hertz < BEND, hertz * (BEND_MEL / BEND), above)


def hertz(mel: Array) -> Array:
    xp = array_namespace(mel)
    above = BEND * xp.exp((xp.clip(mel, min=BEND_MEL) - BEND_MEL) * STEP)
    return xp.where(mel < BEND_MEL, mel * (BEND / BEND_MEL), above)


SLANEY = MelScale(mel, hertz)


class SlaneyFrontend(Frontend):
    """Base of frontends with triangular filters of equal area from 0 to 8 kHz (Slaney 1998)."""

    scale = SLANEY

    def mel_filters(self) -> np.ndarray:
        """Return (fft_size/2+1, F) triangular filters, whose heights make their areas equal."""
        edges = self.scale.to_hertz(self.edges())
        filters = triangles(edges, fft_size=self.fft_size) * (2.0 / (edges[2:] - edges[:-2]))
        return filters.astype(np.float32)


class SlaneyFbank(SlaneyFrontend):
    """Log mel features, equal to those of NeMo's AudioToMelSpectrogramPreprocessor.

    Pre-emphasis 0.97; Hann windows of 25 ms around every 10th ms, with zeros before and after the
    stream; power spectrum; triangular filters of equal area from 0 to 8 kHz (Slaney 1998); and
    log(x + 2^-24). No normalisation over the utterance. N samples give N // 160 frames.
    """

    frame_size = WINDOW + 1  # the pre-emphasis needs one sample more than the window
    guard = 2.0**-24

    def __init__(self, num_mels: int = 80, lead_frames: int = 0) -> None:
        before, after = WINDOW // 2 + 1, WINDOW // 2 - HOP
        super().__init__(num_mels, lead_frames, hann_window(), before, after)

    def power(self, frames: Array) -> Array:
        # The window is in the middle, as in NeMo, so that the spectrum is rounded equally.
        return self.spectra(self.emphasized(frames, lead=(FFT_SIZE - WINDOW) // 2))

    def log(self, mels: Array) -> Array:
        return array_namespace(mels).log(mels + self.guard)


class SherpaNemoFbank(SlaneyFrontend):
    """Log mel features, equal to those that sherpa-onnx computes for models of NeMo.

    Differences from `SlaneyFbank`: windows are around every 10th ms + 5 ms; the first samples in
    reverse order precede the stream; the pre-emphasis stays inside a window; the Hann window is
    periodic; and the logarithm is log(max(x, 2^-23)). N samples give (N + 40) // 160 - 1 frames;
    sherpa-onnx has one or two more, with the last samples in reverse order after the stream.
    """

    floor = 2.0**-23

    def __init__(self, num_mels: int = 80, lead_frames: int = 0) -> None:
        before, window = (WINDOW - HOP) // 2, hann_window(periodic=True)
        super().__init__(num_mels, lead_frames, window, before, mirrored=True)

    def power(self, frames: Array) -> Array:
        return self.spectra(self.emphasized(frames, lead=1))  # the window begins with 0


def hann_window(periodic: bool = False) -> np.ndarray:
    """Return the window (400,), with a zero at the start and, unless periodic, at the end.

    It is rounded in float32 like PyTorch's, which NeMo uses.
    """
    step = np.float32(2.0 * math.pi / (WINDOW if periodic else WINDOW - 1))
    return (1.0 - np.cos(np.arange(WINDOW, dtype=np.float32) * step)) / 2.0
