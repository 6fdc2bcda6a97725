"""Frames of a container on one time line, at one sample rate and number of channels."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from asrkit.audio.file import TOLERANCE
from asrkit.audio.resampler import Resampler, ResamplerPast

CLOCK_JUMP = 10.0  # seconds; a clock that jumps further was adjusted, and nothing is missing
STEP_BACK = 1.0  # seconds; times that step back further begin another recording
ROUNDING = 0.005  # seconds, accuracy of time stamps
LOOK_AHEAD = 4  # frames; a time from which one of the next frames steps back is wrong
ZEROS = 1 << 20  # samples × channels of silence in a block


class Frame(NamedTuple):
    """The samples of a decoded frame."""

    time: float | None  # seconds, by the container's time stamps
    sample_rate: int  # Hz
    samples: np.ndarray  # (n, channels) float32
    after_damage: bool  # whether packets before this frame could not be decoded


class Placement:
    """Computes the silence before each frame, so that each frame is at the time of its playback.

    Args:
        origin: time of the recording's start, seconds; None if the first frame begins it.
        is_clock: whether the times are those of a clock, which may be adjusted while it runs.
        has_times: whether the format has time stamps. For other formats FFmpeg counts times, which
            are wrong after a change of rate and only show where packets were lost.
    """

    def __init__(self, origin: float | None, is_clock: bool, has_times: bool = True) -> None:
        self.origin, self.is_clock, self.has_times = origin, is_clock, has_times
        self.begun, self.holes = False, 0.0  # seconds of silence between frames so far
        self.doubted = 0.0  # seconds between the last two frames that are not inserted

    def silence_before(self, frame: Frame, later: Sequence[float], position: float) -> float:
        """Return the seconds of silence before a frame, after `position` seconds of audio.

        Args:
            later: times of some frames after it, seconds.
        """
        if frame.time is None or any(each < frame.time - STEP_BACK for each in later):
            return 0.0  # a damaged time, of which one flipped bit is up to 24 days in FLV
        first, self.begun = not self.begun, True
        if self.origin is None:
            self.origin = frame.time
        gap = frame.time - self.origin - position
        if first:
            return max(0.0, gap)
        is_counted = not (self.has_times or frame.after_damage)
        is_jump = gap > CLOCK_JUMP and (self.is_clock or not later)
        if is_jump and not self.is_clock:  # a last time may be damaged
            self.doubted = gap
        if gap < -STEP_BACK or is_counted or is_jump:
            self.origin += gap
            return 0.0
        if gap <= (ROUNDING if frame.after_damage else TOLERANCE):
            return 0.0
        self.holes += gap
        return gap


def with_later_times(frames: Iterable[Frame]) -> Iterator[tuple[Frame, list[float]]]:
    """Yield each frame with the times of the LOOK_AHEAD frames after it."""
    waiting: deque[Frame] = deque()
    for frame in chain(frames, [None]):
        if frame is not None:
            waiting.append(frame)
        while len(waiting) > (LOOK_AHEAD if frame is not None else 0):
            first = waiting.popleft()
            yield first, [each.time for each in waiting if each.time is not None]


class Converter:
    """Converts frames of any rate and number of channels to those of the first frame.

    Rate and channels may change within joined files, and within broadcasts.
    """

    def __init__(self, sample_rate: int, num_channels: int) -> None:
        self.sample_rate, self.num_channels = sample_rate, num_channels
        self._resampler: Resampler | None = None  # None: at the right rate already
        self._pasts: list[ResamplerPast] = []  # past of each channel

    def __call__(self, frame: Frame) -> Iterator[np.ndarray]:
        """Yield the samples (n, channels) that a frame completes."""
        rate = self.sample_rate if self._resampler is None else self._resampler.rate
        if frame.sample_rate != rate:
            yield self.rest()
            if frame.sample_rate != self.sample_rate:
                self._resampler = Resampler(frame.sample_rate, self.sample_rate)
                self._pasts = [self._resampler.start()] * self.num_channels
        samples = frame.samples
        if samples.shape[1] != self.num_channels:
            mixed = samples.mean(axis=1, keepdims=True)
            samples = np.repeat(mixed, self.num_channels, axis=1)
        yield self._step(samples)

    def rest(self) -> np.ndarray:
        """Return the samples (n, channels) that waited for more samples of the same rate."""
        samples = self._step(np.zeros((0, self.num_channels), np.float32), last=True)
        self._resampler = None
        return samples

    def _step(self, samples: np.ndarray, last: bool = False) -> np.ndarray:
        if self._resampler is None:
            return samples
        steps = [
            self._resampler.step(past, channel, last)
            for past, channel in zip(self._pasts, samples.T, strict=True)
        ]
        self._pasts = [past for _, past in steps]
        return np.stack([output for output, _ in steps], axis=1)


def silence(num_samples: int, num_channels: int) -> Iterator[np.ndarray]:
    """Yield zeros (n, channels) in blocks."""
    size = ZEROS // num_channels
    while num_samples > 0:
        yield np.zeros((min(size, num_samples), num_channels), np.float32)
        num_samples -= size


def part_of(blocks: Iterator[np.ndarray], first: int, count: int | None) -> Iterator[np.ndarray]:
    """Yield `count` samples of blocks (n, channels), without those before `first`.

    If the part ends at the end of the blocks, their iterator is exhausted too.
    """
    for block in blocks:
        if first >= len(block):
            first -= len(block)
            continue
        block, first = block[first:], 0
        if count is not None and count <= len(block):
            yield block[:count]
            if count == len(block):
                next(blocks, None)
            return
        count = None if count is None else count - len(block)
        yield block
