"""Reading audio, stereo to mono."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile

from asrkit.audio.file import (
    MAX_CHANNELS,
    AudioError,
    Source,
    is_chained,
    name_of,
    opened,
)
from asrkit.audio.resampler import Resampler

logger = logging.getLogger(__name__)

LOUDEST = 100.0  # largest float sample: 40 dB above full scale, more than any mix or recorder has
MAX_VALUES = 2**28  # samples × channels that are read at once, 1 GiB
BLOCK_VALUES = 2**22  # samples × channels in a block


class AudioInfo(NamedTuple):
    sample_rate: int  # Hz
    num_samples: int
    num_channels: int


def info(path: str | Path) -> AudioInfo:
    """Sample rate, samples and channels of an audio file, by its header.

    Raises:
        AudioError: if the file is missing, empty, or not audio.
    """
    with opened(path) as file:
        return AudioInfo(file.samplerate, file.frames, file.channels)


def read(path: Source, start: float = 0.0, duration: float | None = None) -> tuple[np.ndarray, int]:
    """Part of a file as float32 samples (n, channels) at its own rate, and the rate in Hz.

    Args:
        path: of a file, or a file in memory.
        start: seconds.
        duration: seconds; None for the rest of the file.

    Raises:
        AudioError: if the file is missing, empty, not audio, ends before `start`, or is too long
            to be read at once.
    """
    with opened(path) as file:
        wanted = seek(file, path, start, duration)
        refuse_too_many(wanted, file.channels)
        samples = file.read(wanted, dtype="float32", always_2d=True)
        warn_if_incomplete(path, file, wanted, len(samples))
        return samples, file.samplerate


def refuse_too_many(num_samples: float, num_channels: int) -> None:
    """Raises AudioError for more samples than fit into memory."""
    if not num_samples * num_channels <= MAX_VALUES:
        raise AudioError(
            f"{num_samples:.0f} samples of {num_channels} channels are too many to be read at once "
            f"(at most {MAX_VALUES} in all): cut the recording, or name a part of it"
        )


def seek(file: soundfile.SoundFile, path: Source, start: float, duration: float | None) -> int:
    """Go to `start` seconds; the number of samples from there, by `duration` and the header.

    Raises:
        AudioError: if the file ends before `start`, or `start` is negative.
    """
    if not -0.5 <= start * file.samplerate <= file.frames + 0.5:
        seconds = file.frames / file.samplerate
        raise AudioError(f"{name_of(path)} has {seconds:.2f} s; start {start} s is not in it")
    first = min(round(start * file.samplerate), file.frames)
    file.seek(first)
    rest = file.frames - first
    return rest if duration is None else max(0, round(min(rest, duration * file.samplerate)))


def warn_if_incomplete(path: Source, file: soundfile.SoundFile, wanted: int, got: int) -> None:
    """Warn if fewer samples were read than the header has, or if other Ogg streams follow."""
    if got < wanted - file.samplerate // 10:  # headers of lossy formats give a little too much
        logger.warning(
            "%s is cut off: it ends %.2f s before its header says; used as far as it goes",
            name_of(path), (wanted - got) / file.samplerate,
        )  # fmt: skip
    at_end = file.tell() >= file.frames
    if at_end and file.format == "OGG" and isinstance(path, (str, Path)) and is_chained(path):
        logger.warning(
            "%s holds several Ogg streams one after another, of which only the first is read: "
            "convert it to wav", name_of(path),
        )  # fmt: skip


def load(path: str | Path, start: float = 0.0, duration: float | None = None) -> np.ndarray:
    """Part of a file as float32 mono samples (n,) at 16 kHz, mixed down and resampled in blocks.

    Args:
        path: of a file.
        start: seconds.
        duration: seconds; None for the rest of the file.

    Raises:
        AudioError: if the file is missing, empty, not audio, or ends before `start`.
    """
    parts, empty = [], np.zeros(0, np.float32)
    resampler = past = None
    for block, rate in blocks(path, start=start, duration=duration):
        resampler = resampler or Resampler(rate)
        part, past = resampler.step(past or resampler.start(), mono(block))
        parts.append(part)
    if resampler is not None and past is not None:
        parts.append(resampler.step(past, empty, last=True)[0])
    return np.concatenate([empty, *parts])


def blocks(
    path: str | Path, seconds: float = 10.0, start: float = 0.0, duration: float | None = None
) -> Iterator[tuple[np.ndarray, int]]:
    """Part of a file in blocks, so that an hour of audio is never in memory at once.

    Args:
        path: of a file.
        seconds: length of a block; shorter for very high rates or many channels.
        start: seconds.
        duration: seconds; None for the rest of the file.

    Yields:
        float32 samples (n, channels) at the file's rate, and the rate in Hz.

    Raises:
        AudioError: if the file is missing, empty, not audio, or ends before `start`.
    """
    with opened(path) as file:
        wanted, got = seek(file, path, start, duration), 0
        for block in blocks_of(file, wanted, seconds):
            got += len(block)
            yield block, file.samplerate
        warn_if_incomplete(path, file, wanted, got)


def blocks_of(file: soundfile.SoundFile, wanted: int, seconds: float) -> Iterator[np.ndarray]:
    """The next `wanted` samples of an open file, or fewer at its end, in blocks (n, channels)."""
    size = max(1, min(round(seconds * file.samplerate), BLOCK_VALUES // file.channels))
    # Not file.blocks: it repeats old samples when a file is shorter than its header says.
    while wanted > 0:
        block = file.read(min(size, wanted), dtype="float32", always_2d=True)
        if not len(block):
            return
        wanted -= len(block)
        yield block


def mono(samples: np.ndarray) -> np.ndarray:
    """Float samples (n,) in [-1, 1] from int16 or float samples (n,) or (n, channels).

    Float samples may exceed 1, as those of mixes do, up to LOUDEST: larger ones are most often
    int16 values that were not scaled.

    Raises:
        AudioError: for another dtype or shape, or samples that are not finite or beyond LOUDEST.
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
    return np.require(samples, requirements=["C", "W"])  # as torch takes them


def array_of(samples: object) -> np.ndarray:
    """Samples of any shape as an array of int16, float32 or float64.

    Raises:
        AudioError: for anything else.
    """
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
        hint = "; of 16-bit samples, np.frombuffer(data, dtype=np.int16) makes them"
    elif isinstance(samples, (str, Path)):
        hint = "; transcribe takes the path of a file"
    raise AudioError(f"samples must be float32 or int16, got {got}{hint}")


def out_of_range(samples: np.ndarray) -> str:
    """The message for samples (n,) or (n, channels) of which some are not finite or too large."""
    bad = ~(np.abs(samples) <= LOUDEST)
    first, value = int(np.argwhere(bad)[0, 0]), samples[bad][0]
    if not np.isfinite(value):
        count = np.count_nonzero(~np.isfinite(samples))
        return (
            f"samples must be finite, but sample {first} is {value} ({count} of {bad.size} are not)"
        )
    return (
        f"float samples must be in [-1, 1], but sample {first} is {value:g}; "
        "divide those of int16's range by 32768, or pass int16"
    )
