"""Decoded frames on one time line, at one sample rate and number of channels."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asrkit.audio.resampler import Resampler
from asrkit.audio.samples import TOLERANCE

if TYPE_CHECKING:
    from av import AudioFrame

ROUNDING = 0.005  # seconds, accuracy of time stamps
STEP_BACK = 1.0  # seconds; times that step back further begin another recording
ZEROS = 1 << 20  # samples × channels of silence in a block
DTYPES = {"u8": "u1", "s16": "i2", "s32": "i4", "s64": "i8", "flt": "f4", "dbl": "f8"}  # of samples


class Frame(NamedTuple):
    """The samples of a decoded frame."""

    time: float | None  # seconds, by the container's time stamps
    sample_rate: int  # Hz
    samples: np.ndarray  # (n, channels) float32
    after_damage: bool  # whether packets before this frame could not be decoded


@dataclass
class Times:
    """Computes the silence before each frame, so that each frame is at the time of its playback."""

    origin: float | None  # time of the recording's start, seconds; None: the first frame's
    longest: float  # seconds; longer steps are not silence
    has_times: bool  # without, FFmpeg counts packets: wrong after a change of rate
    has_begun: bool = False
    holes: float = 0.0  # seconds of silence between frames
    jumps: float = 0.0  # seconds of steps that are not silence

    def silence_before(self, frame: Frame, following: Frame | None, position: float) -> float:
        """Return the seconds of silence before a frame, after `position` seconds of audio.

        A frame whose time the `following` one steps back from has a wrong time.
        """
        if frame.time is None:
            return 0.0
        if self.origin is None:
            self.origin = frame.time
        gap, is_first = frame.time - self.origin - position, not self.has_begun
        self.has_begun = True
        back = frame.time - following.time if following and following.time is not None else 0.0
        is_jump = gap > self.longest or (gap > STEP_BACK and back > STEP_BACK)
        if is_jump or gap < -STEP_BACK or not (self.has_times or is_first or frame.after_damage):
            self.origin += gap
            self.jumps += gap * is_jump
            return 0.0
        if is_first:
            return max(0.0, gap)
        if gap <= (ROUNDING if frame.after_damage else TOLERANCE):
            return 0.0
        self.holes += gap
        return gap


class Converter:
    """Converts frames to the rate and channels of the first one; both may change in a broadcast."""

    def __init__(self, sample_rate: int, num_channels: int) -> None:
        self.sample_rate, self.num_channels = sample_rate, num_channels
        self._begin(sample_rate)

    def _begin(self, rate: int) -> None:
        self._resampler = Resampler(rate, self.sample_rate)
        self._pasts = [self._resampler.start()] * self.num_channels

    def __call__(self, frame: Frame) -> Iterator[np.ndarray]:
        """Yield the samples (n, channels) that a frame completes."""
        if frame.sample_rate != self._resampler.rate:
            yield self.rest()
            self._begin(frame.sample_rate)
        samples = frame.samples
        if samples.shape[1] != self.num_channels:
            mixed = samples.mean(axis=1, keepdims=True)
            samples = np.repeat(mixed, self.num_channels, axis=1)
        yield self._step(samples)

    def all(self, blocks: Iterable[np.ndarray], rate: int) -> Iterator[np.ndarray]:
        """Yield blocks (n, channels) of one rate in Hz, converted."""
        for block in blocks:
            yield from self(Frame(None, rate, block, False))
        yield self.rest()

    def rest(self) -> np.ndarray:
        """Return the samples (n, channels) that waited for more samples of the same rate."""
        return self._step(np.zeros((0, self.num_channels), np.float32), last=True)

    def _step(self, samples: np.ndarray, last: bool = False) -> np.ndarray:
        if self._resampler.rate == self.sample_rate:
            return samples
        step = self._resampler.step
        steps = [step(*each, last) for each in zip(self._pasts, samples.T, strict=True)]
        self._pasts = [past for _, past in steps]
        return np.stack([output for output, _ in steps], axis=1)


def silence(num_samples: int, num_channels: int) -> Iterator[np.ndarray]:
    """Yield zeros (n, channels) in blocks."""
    size = ZEROS // num_channels
    for left in range(num_samples, 0, -size):
        yield np.zeros((min(size, left), num_channels), np.float32)


def samples_of(frame: "AudioFrame") -> np.ndarray:
    """Return a frame's samples (n, channels) in float32, full scale 1."""
    dtype, channels = np.dtype(DTYPES[frame.format.name.rstrip("p")]), frame.layout.nb_channels
    buffers: Any = frame.planes  # of many channels more than there are, whose memory is not theirs
    planes = [np.frombuffer(plane, dtype) for plane in buffers[:channels]]
    if frame.format.is_planar:
        samples = np.stack([plane[: frame.samples] for plane in planes], axis=1)
    else:
        samples = planes[0][: frame.samples * channels].reshape(-1, channels)
    if dtype.kind == "f":
        return samples.astype(np.float32, copy=False)
    middle, scale = (128.0, 128.0) if dtype.kind == "u" else (0.0, -float(np.iinfo(dtype).min))
    return ((samples - middle) / scale).astype(np.float32)
