"""Reading audio files of any format, whole or in blocks, at their own rate or at 16 kHz.

A file that is missing, empty, not audio, or lacks the part, channel or track is an AudioError.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from asrkit.audio.exact import by_libsndfile
from asrkit.audio.reader import AudioFile
from asrkit.audio.resampler import Resampler
from asrkit.audio.samples import TOLERANCE, AudioError, Source, bytes_of, mono, name_of
from asrkit.errors import no_file

logger = logging.getLogger(__name__)

# Endings of the names of audio files and videos.
SUFFIXES = {
    ".3g2", ".3gp", ".aac", ".ac3", ".aif", ".aifc", ".aiff", ".amr", ".ape", ".asf", ".au",
    ".avi", ".caf", ".dts", ".eac3", ".flac", ".flv", ".m2ts", ".m4a", ".m4b", ".m4v", ".mka",
    ".mkv", ".mov", ".mp2", ".mp3", ".mp4", ".mpeg", ".mpg", ".mts", ".mxf", ".nut", ".oga",
    ".ogg", ".ogv", ".opus", ".rf64", ".snd", ".sph", ".spx", ".ts", ".tta", ".voc", ".w64",
    ".wav", ".webm", ".wma", ".wmv",
}  # fmt: skip
MAX_VALUES = 2**28  # samples × channels in one read, 1 GiB
BLOCK_VALUES = 2**22  # samples × channels in a block


class AudioInfo(NamedTuple):
    sample_rate: int  # Hz
    num_samples: int
    num_channels: int


@contextmanager
def opened(source: Source, track: int | None = None) -> Iterator[AudioFile]:
    """Open a file; leaving the block closes it.

    libsndfile reads the formats that it reads exactly, FFmpeg all others. A path always names a
    local file, never a URL or a device.

    Args:
        track: number of the audio track in a container, from 0; None for the default one.
    """
    name = name_of(source)
    try:
        if isinstance(source, (str, Path)):
            check_path(Path(source), name)
        file: AudioFile | None
        file = None if track else by_libsndfile(source, name)
        if file is None:
            from asrkit.audio.containers import Container

            file = Container(bytes_of(source), name, track)
    except OSError as error:
        raise AudioError(f"{name} cannot be read: {error.strerror or error}") from error
    with closing(file):
        yield file


def check_path(path: Path, name: str) -> None:
    """Raise AudioError unless the path names a file that is not empty."""
    if path.is_fifo() or (str(path) == "-" and not path.exists()):
        raise AudioError(f"{name} is a pipe, which is not read here: asrkit stream - reads it")
    if not path.is_file():
        raise AudioError(f"{name} {no_file(path)}")
    if path.stat().st_size == 0:
        raise AudioError(f"{name} is empty (0 bytes)")


def info(path: Source, track: int | None = None) -> AudioInfo:
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
        size = BLOCK_VALUES // file.num_channels
        blocks = part_of_file(file, size, start, duration)
        return joined(blocks, (0, file.num_channels)), file.sample_rate


def joined(blocks: Iterable[np.ndarray], empty: tuple[int, ...]) -> np.ndarray:
    """Return blocks (n, …) as one array; reject more than memory holds."""
    parts, size = [np.zeros(empty, np.float32)], 0
    for block in blocks:
        parts.append(block)
        size += block.size
        if size > MAX_VALUES:
            raise AudioError(
                f"more than {MAX_VALUES} samples are too many to be read at once; cut the "
                "recording, or read a part of it"
            )
    return np.concatenate(parts)


def part_of_file(
    file: AudioFile, size: int, start: float = 0.0, duration: float | None = None
) -> Iterator[np.ndarray]:
    """Yield part of an open file in blocks (n, channels) of `size` samples; log its problems."""
    place = start * file.sample_rate
    first = round(place) if -0.5 <= place < 2.0**62 else -1
    count = None if duration is None else round(min(duration * file.sample_rate, 2.0**62))
    block, done = None, 0
    if first >= 0:
        for block in file.blocks(size, first, count):
            done += len(block)
            yield block
    if first < 0 or (block is None and count != 0 and first > file.count()):
        seconds = file.count() / file.sample_rate
        raise AudioError(f"{file.name} has {seconds:.2f} s; start {start} s is not in it")
    if duration is not None and done < (duration - TOLERANCE) * file.sample_rate:
        missing = outside(start, start + duration, (first + done) / file.sample_rate)
        logger.warning("%s %s; the audio there is used", file.name, missing)
    for problem in file.problems:
        logger.warning("%s %s", file.name, problem)


def outside(start: float, end: float, seconds: float) -> str:
    """Return the line about a part that a file of `seconds` does not have to its end."""
    return f"has {seconds:.2f} s; {start:g} to {end:g} s are not all in it"


def blocks(
    path: Source,
    seconds: float = 10.0,
    start: float = 0.0,
    duration: float | None = None,
    channel: int | Literal["split"] | None = None,
    track: int | None = None,
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield part of a file in mono blocks (n,) in float32, with the rate in Hz; see `read`.

    So an hour of audio is never in memory at once. Blocks of very high rates or many channels are
    shorter than `seconds`.

    Args:
        channel: number of the channel; None for the mean; "split" for blocks (n, channels).
    """
    with opened(path, track) as file:
        for block in part_of_file(file, block_size(file, seconds), start, duration):
            if channel is None:
                yield file.mean(block), file.sample_rate
            else:
                samples = block if channel == "split" else mono(block, channel, file.name)
                yield samples, file.sample_rate


def block_size(file: AudioFile, seconds: float) -> int:
    """Return the samples of a channel in a block of `seconds`, limited by memory."""
    return max(1, min(round(seconds * file.sample_rate), BLOCK_VALUES // file.num_channels))


def load(
    path: Source,
    start: float = 0.0,
    duration: float | None = None,
    channel: int | None = None,
    track: int | None = None,
) -> np.ndarray:
    """Read part of a file as float32 mono (n,) at 16 kHz, resampled in blocks; see `read`."""
    return at_16_khz(blocks(path, 10.0, start, duration, channel, track))


def at_16_khz(blocks: Iterable[tuple[np.ndarray, int]]) -> np.ndarray:
    """Return mono blocks of a recording, each with its rate in Hz, as samples (n,) at 16 kHz."""
    return joined(resampled(blocks), (0,))


def resampled(blocks: Iterable[tuple[np.ndarray, int]]) -> Iterator[np.ndarray]:
    """Yield mono blocks of a recording at 16 kHz."""
    resampler = past = None
    for block, rate in blocks:
        resampler = resampler or Resampler(rate)
        part, past = resampler.step(past or resampler.start(), block)
        yield part
    if resampler is not None and past is not None:
        yield resampler.step(past, np.zeros(0, np.float32), last=True)[0]
