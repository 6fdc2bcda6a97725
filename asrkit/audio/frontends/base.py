"""Base of all frontends: frames of samples in steps of any size, and both ends of a stream.

Formulas are written against the array API: NumPy computes them where a model runs, and PyTorch in
training and exports, where `model.TorchFrontend` holds the constants.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from asrkit.arrays import array_namespace
from asrkit.audio.resampler import SAMPLE_RATE

WINDOW = 400  # samples, 25 ms
HOP = 160  # samples, 10 ms
FFT_SIZE = 512
GROUP = 8  # frames of a product of NumPy; among more, rows are rounded differently
BLOCK = 64  # frames that NumPy computes at once, few enough for the cache of a processor
NYQUIST = SAMPLE_RATE / 2  # Hz

Array = Any  # of NumPy or PyTorch
Count = TypeVar("Count", int, Array)
Self = TypeVar("Self", bound="Frontend")


class MelScale(NamedTuple):
    """A frequency scale on which filters have equal widths."""

    of_hertz: Callable[[Array], Array]
    to_hertz: Callable[[Array], Array]


class Frontend:
    """Log mel features: 25 ms windows every 10 ms, power spectrum, mel filters, logarithm.

    Every split of the samples into steps gives the same numbers:

        past = frontend.start(batch_size)
        feats, past = frontend(samples, past)

    A whole stream is followed by padding, see `ended`. A kind defines the filters (`mel_filters`),
    the power spectrum of a frame's samples (`power`), and the logarithm of the filters' energies
    (`log`). The attributes of the class are those of most kinds.

    Args:
        lead_frames: number of feature frames before a stream's first sample, for encoders that
            begin earlier. Their values do not matter to the encoder.
        window: (400,), factors of the samples of a window.
        before: samples of padding before a stream, without those of `lead_frames`.
        after: samples of padding after a stream. `asrkit.context` has a picture.
        mirrored: whether the stream's first samples in reverse order precede it instead of zeros.
    """

    scale: MelScale  # scale of the filters
    log_scale = 1.0  # features of a natural logarithm
    CONSTANTS: tuple[str, ...] = ("window", "filters")  # attributes that are arrays
    window: Array
    filters: Array  # (fft_size/2+1, F); 257 with 512
    frame_size, hop = WINDOW, HOP  # samples that a frame needs, and from one frame to the next
    fft_size = FFT_SIZE  # samples of a Fourier transform, at least those of a window
    low, high = 0.0, NYQUIST  # start of the first filter and end of the last one, Hz
    floor = 0.0  # lowest energy of a filter
    preemphasis = 0.97
    edge = 0  # first sample of a stream that is mirrored

    def __init__(
        self, num_mels: int, lead_frames: int, window: np.ndarray, before: int, after: int = 0,
        mirrored: bool = False,
    ) -> None:  # fmt: skip
        self.num_mels, self.lead_frames = num_mels, lead_frames
        self.before, self.after = before + HOP * lead_frames, after
        self.mirrored = before if mirrored else 0
        # Frontends that mirror the start of a stream use a longer initial past. Its length tells
        # `__call__` that the stream has not started.
        self.marker = self.frame_size if mirrored else 0
        self.window, self.filters = window.astype(np.float32), self.mel_filters()

    def converted(self: Self, convert: Callable[[Array], Array]) -> Self:
        """Return a copy with converted constants: of another type, library or device."""
        other = copy.copy(self)
        for name in self.CONSTANTS:
            setattr(other, name, convert(getattr(self, name)))
        return other

    def power(self, frames: Array) -> Array:
        """Frames of samples (B, T, frame_size) -> power spectra (B, T, 257)."""
        raise NotImplementedError

    def emphasized(self, frames: Array, lead: int) -> Array:
        """Frames (B, T, n) -> their pre-emphasis, times the window, between zeros (B, T, 512).

        The first sample is left out, because it has no predecessor; `lead` zeros come first.
        """
        # NumPy's transform takes longer if it has to append the zeros itself.
        xp, size = array_namespace(frames), frames.shape[2] - 1
        samples = frames[:, :, 1:] - self.preemphasis * frames[:, :, :-1]
        zeros = xp.zeros_like(frames[:, :, : self.fft_size - size])
        parts = [zeros[:, :, :lead], samples * self.window[-size:], zeros[:, :, lead:]]
        return xp.concat(parts, axis=2)

    def spectra(self, windows: Array) -> Array:
        """Windows (B, T, 512) -> power spectra (B, T, 257)."""
        # Without this norm NumPy transforms in float64, which takes longer.
        xp, size = array_namespace(windows), self.fft_size
        spectrum = xp.fft.rfft(windows, n=size, axis=2, norm="forward")
        return (spectrum.real**2 + spectrum.imag**2) * size**2

    def log(self, mels: Array) -> Array:
        """Return the logarithm of the filters' energies."""
        return array_namespace(mels).log(mels.clip(self.floor))

    def edges(self) -> np.ndarray:
        """Return (F+2,) edges in mel: filter i begins at edge i, peaks at i + 1, ends at i + 2."""
        first, last = self.scale.of_hertz(np.array([self.low, self.high])).tolist()
        return np.linspace(first, last, self.num_mels + 2)

    def mel_filters(self) -> np.ndarray:
        """Return the (fft_size/2+1, F) filters."""
        raise NotImplementedError

    def start(self, batch_size: int) -> Array:
        """Return the past of streams that have not started: (B, marker+before)."""
        return self._zeros(batch_size, self.marker + self.before)

    def _zeros(self, *shape: int) -> Array:
        xp, like = array_namespace(self.filters), self.filters
        return xp.zeros(shape, dtype=like.dtype, device=like.device)

    def beginning(self, samples: Array) -> Array:
        """Replace the initial past of a stream by its padding: (B, marker+before+N), N at least
        `mirrored` -> (B, before+N)."""
        if not self.mirrored:
            return samples
        samples = samples[:, self.marker :]
        lead, first = self.before - self.mirrored, samples[:, self.before :]
        xp = array_namespace(samples)
        mirror = xp.flip(first[:, self.edge : self.edge + self.mirrored], axis=1)
        return xp.concat([samples[:, :lead], mirror, first], axis=1)

    def __call__(self, samples: Array, past: Array) -> tuple[Array, Array]:
        """Return the frames that end in these samples, and the new past.

        Args:
            samples: (B, N) in [-1, 1], any N.
            past: (B, P), samples from the start of the next frame on. After the first frame P is
                frame_size - 160 if all steps are multiples of 160 samples.

        Returns:
            (B, T, F) log mels with T = 1 + (P+N-frame_size) // 160, without frames that end before
            the stream; and the new past.
        """
        needed = self.frame_size
        begins = past.shape[1] >= self.frame_size  # only an initial past is this long
        if begins:
            needed += self.lead_frames * self.hop + self.marker
        samples = array_namespace(samples).concat([past, samples], axis=1)  # (B, P+N)
        if samples.shape[1] < needed:
            return self._zeros(len(samples), 0, self.num_mels), samples
        if begins:
            samples = self.beginning(samples)
        feats = self.frames(samples)
        return feats, samples[:, feats.shape[1] * self.hop :]

    def frames(self, samples: Array) -> Array:
        """Return the features of all whole frames of samples: (B, N) -> (B, T, F)."""
        if not isinstance(samples, np.ndarray):
            return self.of(samples.unfold(1, self.frame_size, self.hop))
        frames = sliding_window_view(samples, self.frame_size, axis=1)[:, :: self.hop]
        starts = range(0, frames.shape[1], BLOCK)
        return np.concatenate([self.of(frames[:, i : i + BLOCK]) for i in starts], axis=1)

    def of(self, frames: Array) -> Array:
        """Return the features of frames (B, T, frame_size): (B, T, F)."""
        return self.log(times(self.power(frames), self.filters))

    @property
    def lead_ms(self) -> int:
        """Return the milliseconds from the start of the first frame to the first sample."""
        return round(1000 * self.before / SAMPLE_RATE)

    def num_frames(self, num_samples: Count) -> Count:
        """Return the number of frames of a whole stream of `num_samples` samples."""
        size = num_samples + (self.before + self.after)
        frames = (size - (self.frame_size - self.hop)) // self.hop
        return frames * (frames > self.lead_frames)

    def ended(self, samples: Array, num_samples: Array) -> Array:
        """Append padding to whole streams: zeros after the pre-emphasis, (B, N) -> (B, N+after).

        Args:
            num_samples: (B,) valid samples of each row, before zeros.
        """
        if not self.after:
            return samples
        xp = array_namespace(samples)
        samples = xp.concat([samples, self._zeros(len(samples), self.after)], axis=1)
        places = xp.arange(samples.shape[1], device=samples.device)
        beyond = xp.clip(places + 1 - num_samples[:, None], min=0)  # 1, 2, … after the last sample
        ends = xp.clip(num_samples[:, None] - 1, min=0)  # (B, 1)
        last = xp.take_along_axis(samples, ends, axis=1)
        decay = self.preemphasis ** xp.astype(beyond, samples.dtype)
        return xp.where(beyond > 0, last * decay, samples)


def times(frames: Array, matrix: Array) -> Array:
    """Return (B, T, n) times a matrix (n, m).

    NumPy multiplies GROUP frames at a time, and zeros after the last ones, so that the rounding of
    a frame does not depend on the number of frames.
    """
    if not isinstance(frames, np.ndarray):
        return frames @ matrix
    batch, count, size = frames.shape
    if missing := -count % GROUP:
        rows = np.zeros((batch, count + missing, size), frames.dtype)
        rows[:, :count] = frames
        frames = rows
    products = frames.reshape(batch, -1, GROUP, size) @ matrix
    return products.reshape(batch, -1, matrix.shape[1])[:, :count]


def features(frontend: Frontend, samples: Array, num_samples: Array) -> tuple[Array, Array]:
    """Compute the features of whole zero-padded recordings: (B, N) in [-1, 1] -> (B, T, F).

    Also return the number of frames of each row, (B,), by its number of samples, (B,).
    """
    feats, _ = frontend(frontend.ended(samples, num_samples), frontend.start(len(samples)))
    return feats, frontend.num_frames(num_samples)


def triangles(
    edges: np.ndarray,
    scale: Callable[[np.ndarray], np.ndarray] = np.asarray,
    fft_size: int = FFT_SIZE,
) -> np.ndarray:
    """Return (fft_size/2+1, F) filters between (F+2,) edges on a scale, a function of Hz.

    Each filter rises from an edge to the next and falls to the one after it.
    """
    bins = scale((np.arange(fft_size // 2 + 1) * SAMPLE_RATE / fft_size)[:, None])
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (bins - left) / (centre - left)
    falling = (right - bins) / (right - centre)
    return np.minimum(rising, falling).clip(0.0)
