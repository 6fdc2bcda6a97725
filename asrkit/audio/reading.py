"""Reading audio: whole or in blocks, all channels or mixed, at its own rate or at 16 kHz.

A file that is missing, empty, not audio, or lacks the part, channel or track is an AudioError.
"""

import logging
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asrkit.audio.file import MAX_CHANNELS, AudioError, AudioFile, Source, name_of
from asrkit.audio.open_file import opened
from asrkit.audio.resampler import Resampler

logger = logging.getLogger(__name__)

LOUDEST = 100.0  # largest float sample: 40 dB above full scale, more than mixes or recorders reach
MAX_VALUES = 2**28  # samples × channels in one read, 1 GiB
BLOCK_VALUES = 2**22  # samples × channels in a block
CANCELLED_DB = -12.0  # `mix_db` below which channels cancel each other out


class AudioInfo(NamedTuple):
    sample_rate: int  # Hz
    num_samples: int
    num_channels: int


def info(path: str | Path, track: int | None = None) -> AudioInfo:
    """Return sample rate, samples and channels of an audio file.

    The file is decoded to its end if its header does not state the length.
    """
    with opened(path, track) as file:
        return AudioInfo(file.sample_rate, file.count(), file.num_channels)


def read(
    path: Source, start: float = 0.0, duration: float | None = None, track: int | None = None
) -> tuple[np.ndarray, int]:
    """Read part of a file as float32 samples (n, channels) at its own rate; also return the rate.

    Args:
        start: start of the part in seconds.
        duration: seconds; None for the rest of the file.
        track: number of the audio track in a container, from 0; None for the default one.
    """
    with opened(path, track) as file:
        if file.num_samples is not None:
            rest = min(file.num_samples, max(0.0, file.num_samples - start * file.sample_rate))
            wanted = rest if duration is None else min(rest, duration * file.sample_rate)
            refuse_too_many(wanted, file.num_channels)
        parts, size = [np.zeros((0, file.num_channels), np.float32)], 0
        for block in part_of_file(file, BLOCK_VALUES // file.num_channels, start, duration):
            size += len(block)
            refuse_too_many(size, file.num_channels)
            parts.append(block)
        return np.concatenate(parts), file.sample_rate


def refuse_too_many(num_samples: float, num_channels: int) -> None:
    """Raise AudioError for more samples than fit into memory."""
    if not num_samples * num_channels <= MAX_VALUES:
        raise AudioError(
            f"{num_samples:.0f} samples of {num_channels} channels are too many to be read at once "
            f"(limit: {MAX_VALUES} in all); cut the recording, or read a part of it"
        )


def part_of_file(
    file: AudioFile, size: int, start: float = 0.0, duration: float | None = None
) -> Iterator[np.ndarray]:
    """Yield part of an open file in blocks (n, channels) of `size` samples; log its problems."""
    rate, known = file.sample_rate, file.num_samples
    longest = float("inf") if known is None else known + 0.5
    if not -0.5 <= start * rate <= longest or start == float("inf"):
        raise outside(file, start)
    first = round(start * rate) if known is None else min(round(start * rate), known)
    count = None if duration is None or duration * rate > 2**62 else round(duration * rate)
    found = False
    for block in file.blocks(size, first, count):
        found = True
        yield block
    if not found and first and known is None and count != 0 and first > file.count():
        raise outside(file, start)
    for problem in file.problems:
        logger.warning("%s %s", file.name, problem)


def outside(file: AudioFile, start: float) -> AudioError:
    """Return the error for a part outside a file."""
    seconds = file.count() / file.sample_rate
    return AudioError(f"{file.name} has {seconds:.2f} s; start {start} s is not in it")


def blocks(
    path: Source,
    seconds: float = 10.0,
    start: float = 0.0,
    duration: float | None = None,
    track: int | None = None,
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield part of a file in blocks (n, channels) in float32, with the rate in Hz; see `read`.

    So an hour of audio is never in memory at once. Blocks of very high rates or many channels are
    shorter than `seconds`.
    """
    with opened(path, track) as file:
        size = block_size(file, seconds)
        for block in part_of_file(file, size, start, duration):
            yield block, file.sample_rate


def block_size(file: AudioFile, seconds: float) -> int:
    """Return the samples of a channel in a block of `seconds`, limited by memory."""
    return max(1, min(round(seconds * file.sample_rate), BLOCK_VALUES // file.num_channels))


def mono_blocks(
    path: Source,
    seconds: float = 10.0,
    start: float = 0.0,
    duration: float | None = None,
    channel: int | None = None,
    track: int | None = None,
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield part of a file in mono blocks (n,): the mean of channels, or one; see `blocks`."""
    mixer = Mixer(name_of(path), channel)
    for block, rate in blocks(path, seconds, start, duration, track):
        yield mixer(block), rate
    mixer.warn()


def mix_db(mixed: float, channels: "np.ndarray | float") -> float:
    """Return the level of a mix in decibels from -100, by its energy and those of its channels.

    It is relative to independent channels: 0 for these, for silence, and if only a single channel
    has sound, as in a film with speech in the centre.
    """
    independent = float(np.sum(channels)) / np.size(channels) ** 2
    return 10.0 * math.log10(max(mixed / independent, 1e-10)) if independent else 0.0


def no_channel(name: str, channel: int, num_channels: int) -> AudioError:
    """Return the error for a channel that a recording does not have."""
    has = f"the channels 0 to {num_channels - 1}" if num_channels > 1 else "one channel, number 0"
    return AudioError(f"{name} has {has}, got channel {channel}")


class Mixer:
    """Converts blocks (n, channels) of one recording to mono (n,): the mean, or one channel."""

    def __init__(self, name: str, channel: int | None = None) -> None:
        self.name, self.channel = name, channel
        self._energies: np.ndarray | float = 0.0  # energy of each channel
        self._mixed = 0.0  # energy of the mix

    def __call__(self, block: object) -> np.ndarray:
        """Return the mono samples of a block (n, channels) or (n,), float32 or int16."""
        samples = array_of(block)
        channels = samples.shape[1] if samples.ndim == 2 else 1
        if self.channel is not None:
            if not 0 <= self.channel < channels:
                raise no_channel(self.name, self.channel, channels)
            return mono(samples if samples.ndim == 1 else samples[:, self.channel])
        mixed = mono(samples)
        if channels > 1:
            scale = 32768.0 if samples.dtype == np.int16 else 1.0
            energies = np.square(samples / scale, dtype=np.float64).sum(axis=0)
            self._energies = self._energies + energies
            self._mixed += float(np.square(mixed, dtype=np.float64).sum())
        return mixed

    def problems(self) -> list[str]:
        """Return a line if the channels cancelled each other out."""
        level = mix_db(self._mixed, self._energies)
        if level >= CANCELLED_DB:
            return []
        channel = int(np.argmax(self._energies))
        return [
            f"has channels that cancel each other out: their mix is {-level:.0f} dB below that "
            f"of independent channels; --channel {channel} reads only the loudest one"
        ]

    def warn(self) -> None:
        """Log the problem, if there is one."""
        for problem in self.problems():
            logger.warning("%s %s", self.name, problem)


def load(
    path: Source,
    start: float = 0.0,
    duration: float | None = None,
    channel: int | None = None,
    track: int | None = None,
) -> np.ndarray:
    """Read part of a file as float32 mono (n,) at 16 kHz, resampled in blocks; see `read`."""
    return at_16_khz(mono_blocks(path, 10.0, start, duration, channel, track))


def at_16_khz(blocks: Iterable[tuple[np.ndarray, int]]) -> np.ndarray:
    """Return mono blocks of a recording, each with its rate in Hz, as samples (n,) at 16 kHz."""
    empty = np.zeros(0, np.float32)
    parts, size = [empty], 0
    resampler = past = None
    for block, rate in blocks:
        resampler = resampler or Resampler(rate)
        part, past = resampler.step(past or resampler.start(), block)
        size += len(part)
        refuse_too_many(size, 1)
        parts.append(part)
    if resampler is not None and past is not None:
        parts.append(resampler.step(past, empty, last=True)[0])
    return np.concatenate(parts)


def mono(samples: np.ndarray) -> np.ndarray:
    """Return float samples (n,) in [-1, 1] from int16 or float samples (n,) or (n, channels).

    Float samples may exceed 1 up to LOUDEST, as mixes do. Larger ones are usually int16 values
    without scaling.
    """
    samples = array_of(samples)
    if samples.ndim not in (1, 2):
        raise AudioError(f"samples must be (n,) or (n, channels), got shape {samples.shape}")
    if samples.ndim == 2 and not 1 <= samples.shape[1] <= MAX_CHANNELS:
        raise AudioError(f"samples must be (n, channels), got {samples.shape}: transpose them?")
    if samples.dtype == np.int16:
        samples = samples.astype(np.float32) / 32768.0
    # Comparisons with NaN are false.
    if not (samples.max(initial=0.0) <= LOUDEST and samples.min(initial=0.0) >= -LOUDEST):
        raise AudioError(out_of_range(samples))
    if samples.ndim == 2:
        return samples.mean(axis=1)
    return np.require(samples, requirements=["C", "W"])  # torch needs writable, contiguous arrays


def apart(samples: np.ndarray) -> np.ndarray:
    """Return float samples (n, channels) like `mono`, with the channels kept apart."""
    return np.stack([mono(channel) for channel in array_of(samples).T], axis=1)


def array_of(samples: object) -> np.ndarray:
    """Return samples of any shape as an array of int16, float32 or float64."""
    try:
        array = np.asarray(samples)
    except (TypeError, ValueError, RuntimeError):  # ragged lists; tensors of another device
        array = np.empty(0, dtype=object)
    if array.dtype in (np.int16, np.float32, np.float64):
        return array
    got = type(samples).__name__ if array.dtype.kind in "OSUV" else str(array.dtype)
    hint = ""
    if isinstance(samples, (bytes, bytearray, memoryview)):
        got = type(samples).__name__
        hint = "; for 16-bit samples use np.frombuffer(data, dtype=np.int16)"
    elif isinstance(samples, (str, Path)):
        hint = "; pass the path of a file to transcribe"
    raise AudioError(f"samples must be float32 or int16, got {got}{hint}")


def out_of_range(samples: np.ndarray) -> str:
    """Return the message for samples (n,) or (n, channels) that are not finite or too large."""
    bad = ~(np.abs(samples) <= LOUDEST)
    first, value = int(np.argwhere(bad)[0, 0]), samples[bad][0]
    if not np.isfinite(value):
        count = np.count_nonzero(~np.isfinite(samples))
        return (
            f"samples must be finite, but sample {first} is {value} ({count} of {bad.size} are not)"
        )
    return (
        f"float samples must be in [-1, 1], but sample {first} is {value:g}; divide values in the "
        "range of int16 by 32768, or pass int16"
    )
