"""Streaming conversion of the sample rate by a windowed sinc.

Output sample k lies at k · rate / output_rate of the input, and is the dot product of the 2H input
samples around this place with a Kaiser-windowed sinc. Neighbouring output samples form a tile: one
matrix product whose shape and place in the stream never change. Samples of an incomplete tile come
from the same product, with zeros for missing input that they do not depend on. So their bits do not
depend on packets.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from asrkit.audio.samples import MAX_RATE, MIN_RATE, AudioError
from asrkit.errors import shown, whole_number

SAMPLE_RATE = 16000  # Hz of all computation in asrkit
CROSSINGS = 64  # zero crossings of the sinc on each side
CUTOFF = 0.95  # -6 dB, share of the lower rate's Nyquist frequency; higher frequencies are removed
BETA = 10.06  # parameter of the Kaiser window: 100 dB
MOST_PHASES = 640  # places between two samples for which there is a filter: 11025 Hz
BLOCK = 64  # approximate number of output samples in a row of the matrix product
ROWS = 4  # rows of a tile


class ResamplerPast(NamedTuple):
    """The past of a stream: everything that its next output depends on."""

    samples: np.ndarray  # (P,) input, from the first sample that the next output's tile needs
    taken: int  # number of input samples so far
    given: int  # number of output samples so far


class Resampler:
    """Converts streams to another sample rate; it stores no stream.

        past = resampler.start()
        samples, past = resampler.step(past, samples)

    The output is the same, bit for bit, for all packet sizes. Its only delay is half the filter,
    for which each sample waits: 8 ms at 8 kHz, 4 ms from 16 kHz on.
    """

    def __init__(self, rate: int, output_rate: int = SAMPLE_RATE, dtype: str = "float32") -> None:
        whole = checked_rate(rate)
        self.rate, self.output_rate, self.dtype = whole, output_rate, dtype
        self._tile = None if whole == output_rate else tile_of(whole, output_rate, dtype)

    def start(self) -> ResamplerPast:
        """Return the past of a stream that has not started."""
        silence = 0 if self._tile is None else self._tile.half - 1
        return ResamplerPast(np.zeros(silence, self.dtype), 0, 0)

    def step(
        self, past: ResamplerPast, samples: np.ndarray, last: bool = False
    ) -> tuple[np.ndarray, ResamplerPast]:
        """Return the output that samples (n,) complete, or all after the last, and the new past."""
        samples = np.ascontiguousarray(samples, dtype=self.dtype)
        tile, taken = self._tile, past.taken + len(samples)
        if tile is None:
            return samples, ResamplerPast(past.samples, taken, taken)
        samples = np.concatenate([past.samples, samples])
        ready = tile.total(taken) if last else max(past.given, tile.complete(taken))
        if ready == past.given:
            return samples[:0], ResamplerPast(samples, taken, ready)
        start = past.given // tile.size * tile.size
        count = -(-(ready - start) // tile.size)
        output = tile(samples, count)[past.given - start : ready - start]
        unused = tile.input(ready // tile.size * tile.size) - tile.input(start)
        return output, ResamplerPast(samples[unused:].copy(), taken, ready)


def resample(samples: np.ndarray, rate: int, output_rate: int = SAMPLE_RATE) -> np.ndarray:
    """Convert a whole recording to another rate: (n,) -> (n·output_rate/rate,).

    float64 samples stay float64, all others become float32.
    """
    resampler = Resampler(rate, output_rate, str(np.result_type(samples, np.float32)))
    return resampler.step(resampler.start(), samples, last=True)[0]


def needed(output: int, rate: int) -> int:
    """Return the number of input samples that determine the first `output` output samples."""
    if rate == SAMPLE_RATE:
        return output
    return half_of(rate, SAMPLE_RATE) + (output - 1) * rate // SAMPLE_RATE + 1


def half_of(rate: int, output_rate: int) -> int:
    """Return the number of input samples that an output sample depends on, on each side."""
    return math.ceil(CROSSINGS * max(1.0, rate / output_rate) / CUTOFF)


def is_usual(rate: int) -> bool:
    """Return whether a rate in Hz is one of devices: other rates would need too many filters."""
    phases = max(rate, SAMPLE_RATE) // math.gcd(rate, SAMPLE_RATE)
    return MIN_RATE <= rate <= MAX_RATE and phases <= MOST_PHASES


def checked_rate(rate: int) -> int:
    """Return a rate in Hz as an int; reject unusual rates."""
    whole = whole_number(rate, MIN_RATE, MAX_RATE)
    if whole is None or not is_usual(whole):
        raise AudioError(
            f"sample rate must be a usual one from {MIN_RATE} to {MAX_RATE} Hz, such as 8000, "
            f"16000, 44100 or 48000, got {shown(rate)}"
        )
    return whole


class Tile:
    """The matrix product for `size` output samples from a multiple of `size` on.

    Attributes:
        size: number of output samples of a tile.
        half: number of input samples that an output sample depends on, on each side.
    """

    def __init__(self, rate: int, output_rate: int, dtype: str) -> None:
        common = math.gcd(rate, output_rate)
        self.up, self.down, self.dtype = output_rate // common, rate // common, dtype
        self.half = half_of(rate, output_rate)
        block = self.up * max(1, BLOCK // self.up)  # so that all rows have the same weights
        self.stride, self.size = block * self.down // self.up, block * ROWS
        places = np.arange(block) * self.down
        filters = kaiser_sinc(self.up, self.half, CUTOFF / max(1.0, rate / output_rate))
        inputs = (places // self.up)[:, None] + np.arange(2 * self.half)
        weights = np.zeros((block, -(-int(places[-1]) // self.up) + 2 * self.half), dtype)
        np.put_along_axis(weights, inputs, filters.astype(dtype)[places % self.up], axis=1)
        self.weights = np.ascontiguousarray(weights.T)  # (width, block)

    def input(self, output: int) -> int:
        """Return the input sample at the place of an output sample, or the last one before it."""
        return output * self.down // self.up

    def complete(self, taken: int) -> int:
        """Return the number of output samples that the first `taken` input samples determine."""
        return max(0, -((self.half - taken) * self.up // self.down))

    def total(self, taken: int) -> int:
        """Return the output samples of a stream of `taken` input samples; halves are rounded up."""
        return (2 * taken * self.up + self.down) // (2 * self.down)

    def __call__(self, samples: np.ndarray, count: int) -> np.ndarray:
        """Return the output of `count` tiles, correct where all input is present.

        Args:
            samples: (P,) input, from the first sample that the first tile depends on.
        """
        width, block = self.weights.shape
        missing = (count * ROWS - 1) * self.stride + width - len(samples)
        samples = np.concatenate([samples, np.zeros(max(0, missing), self.dtype)])
        rows = sliding_window_view(samples, width)[:: self.stride]
        result = np.empty((count, ROWS, block), self.dtype)
        for start, tile in zip(range(0, count * ROWS, ROWS), result, strict=True):
            np.dot(rows[start : start + ROWS].copy(), self.weights, out=tile)
        return result.ravel()


# Streams of the same rate share a tile of two megabytes or less.
tile_of = functools.lru_cache(maxsize=32)(Tile)


def kaiser_sinc(phases: int, half: int, cutoff: float) -> np.ndarray:
    """Return (phases, 2·half): low-pass filters for output between two input samples.

    Args:
        phases: steps from one input sample to the next.
        cutoff: share of the input's Nyquist frequency.
    """
    offsets = np.arange(1 - half, half + 1) - np.arange(phases)[:, None] / phases
    inside = np.sqrt(np.maximum(0.0, 1.0 - (offsets / half) ** 2))
    filters = np.sinc(cutoff * offsets) * np.i0(BETA * inside)
    return filters / filters.sum(axis=1, keepdims=True)  # so that a constant is unchanged
