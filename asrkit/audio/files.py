"""Reading audio files of any format, whole or in blocks, at their own rate or at 16 kHz.

A file that is missing, empty, not audio, or lacks the part, channel or track is an AudioError.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile

from asrkit.audio.containers import Container, begins_as_mp3
from asrkit.audio.exact import Exact
from asrkit.audio.resampler import Resampler
from asrkit.audio.samples import (
    MAX_CHANNELS,
    MAX_RATE,
    MIN_RATE,
    AudioError,
    Mixer,
    Source,
    bytes_of,
    name_of,
)
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


class AudioFile:
    """An audio file that is open for reading.

    Attributes:
        name: name of the file in messages.
        sample_rate: Hz.
        num_channels: channels, at most MAX_CHANNELS.
        num_samples: samples of a channel if the header counts them exactly; otherwise None, and
            only reading to the end counts them.
        problems: a line for each part that is not read, without the name. The list is complete when
            `blocks` has reached its end.
    """

    def __init__(self, name: str, reader: Container | Exact) -> None:
        self.name, self._reader = name, reader
        self.sample_rate, self.num_channels = reader.sample_rate, reader.num_channels
        self.num_samples: int | None = reader.num_samples
        self.problems: list[str] = []

    def blocks(self, size: int, first: int = 0, count: int | None = None) -> Iterator[np.ndarray]:
        """Read samples (n, channels) in float32, n = `size` except in the last block.

        The first block begins at sample `first`; all have `count` samples, or for None the rest.
        """
        self.problems = []
        waiting, length = [np.zeros((0, self.num_channels), np.float32)], 0
        with closing(self._reader.samples(first, count, self.problems)) as samples:
            for part in samples:
                waiting.append(part)
                length += len(part)
                if length >= size:
                    *whole, rest = np.split(np.concatenate(waiting), range(size, length + 1, size))
                    yield from whole
                    waiting, length = [rest], len(rest)
        if length:
            yield np.concatenate(waiting)

    def count(self) -> int:
        """Return the number of samples of a channel; read the file if the header lacks it."""
        if self.num_samples is None:
            self.num_samples = sum(len(block) for block in self.blocks(self.sample_rate))
        return self.num_samples


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
        reader = reader_of(source, name, track)
    except OSError as error:
        raise AudioError(f"{name} cannot be read: {error.strerror or error}") from error
    with closing(reader):
        rate, channels = reader.sample_rate, reader.num_channels
        if not MIN_RATE <= rate <= MAX_RATE or not 1 <= channels <= MAX_CHANNELS:
            raise AudioError(
                f"{name} must have 1 to {MAX_CHANNELS} channels at {MIN_RATE} to {MAX_RATE} Hz, "
                f"got {channels} at {rate} Hz"
            )
        yield AudioFile(name, reader)


def reader_of(source: Source, name: str, track: int | None) -> Container | Exact:
    """Open a file in the reader that reads all of it."""
    with closing(bytes_of(source)) as data:
        is_mp3 = begins_as_mp3(data)
    exact = None if is_mp3 else by_libsndfile(source, name)  # libmpg123 writes to standard error
    if exact is not None and not track and exact.is_exact():
        return exact
    try:
        container = Container(bytes_of(source), name, track)
    except AudioError:
        exact = exact or by_libsndfile(source, name)  # FFmpeg decodes nothing of free-format MP3
        if exact is not None and exact.seconds and not track:
            return exact
        if exact is not None:
            exact.close()
        raise
    if exact is not None:
        exact.close()
    return container


def by_libsndfile(source: Source, name: str) -> Exact | None:
    with suppress(soundfile.LibsndfileError):
        return Exact(source, name)
    return None


def check_path(path: Path, name: str) -> None:
    """Raise AudioError unless the path names a file that is not empty."""
    if str(path) == "-" and not path.exists():
        raise AudioError("standard input is not read here: asrkit stream - reads it")
    if path.is_fifo():
        raise AudioError(f"{name} is a pipe, which is not read here: asrkit stream - < {name}")
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
