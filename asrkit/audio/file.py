"""The interface of an open audio file: samples in blocks, and a line for each part not read."""

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from asrkit.errors import UserError, shown

MIN_RATE, MAX_RATE = 1000, 768000  # Hz
MAX_CHANNELS = 64
MAX_SECONDS = 100 * 3600  # longest file; a header that states more was written without the length
TOLERANCE = 0.1  # seconds by which headers and time stamps may differ from samples without a line


def channel_name(channel: int) -> str:
    """Return the name of a channel whose speaker has none."""
    return f"channel {channel}"


class FilePart(io.RawIOBase):
    """The bytes of a file from `start` to `end`, readable like a whole file."""

    def __init__(self, path: Path, start: int, end: int) -> None:
        self.path, self.start, self.end = path, start, end
        self._file = path.open("rb")
        self._file.seek(start)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell() - self.start

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = (self.start, self._file.tell(), self.end)[whence]
        return self._file.seek(max(self.start, origin + offset)) - self.start

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        return self._file.readinto(view[: max(0, self.end - self._file.tell())])

    def close(self) -> None:
        self._file.close()
        super().close()


# Endings of the names of audio files and videos.
SUFFIXES = {
    ".3g2", ".3gp", ".aac", ".ac3", ".aif", ".aifc", ".aiff", ".amr", ".ape", ".asf", ".au",
    ".avi", ".caf", ".dts", ".eac3", ".flac", ".flv", ".gsm", ".m2ts", ".m4a", ".m4b", ".m4v",
    ".mka", ".mkv", ".mov", ".mp2", ".mp3", ".mp4", ".mpeg", ".mpg", ".mts", ".mxf", ".nut",
    ".oga", ".ogg", ".ogv", ".opus", ".rf64", ".snd", ".sph", ".spx", ".ts", ".tta", ".voc",
    ".vox", ".w64", ".wav", ".webm", ".wma", ".wmv",
}  # fmt: skip

Source = str | Path | io.BytesIO | FilePart


class AudioError(UserError):
    """Audio that cannot be used; the message has its name, the problem, and what would be right."""


class NotAudioError(AudioError):
    """A file that a reader does not recognise as audio; the message is only the reader's reason."""


class NoSamplesError(AudioError):
    """A file with the signature of a container that holds no audio that can be decoded."""


class AudioFile(ABC):
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

    def __init__(
        self, name: str, sample_rate: int, num_channels: int, num_samples: int | None
    ) -> None:
        if not MIN_RATE <= sample_rate <= MAX_RATE or not 1 <= num_channels <= MAX_CHANNELS:
            raise AudioError(
                f"{name} must have 1 to {MAX_CHANNELS} channels at {MIN_RATE} to {MAX_RATE} Hz, "
                f"got {num_channels} at {sample_rate} Hz"
            )
        self.name, self.sample_rate, self.num_channels = name, sample_rate, num_channels
        self.num_samples = num_samples
        self.problems: list[str] = []

    @abstractmethod
    def blocks(self, size: int, first: int = 0, count: int | None = None) -> Iterator[np.ndarray]:
        """Read samples (n, channels) in float32, n = `size` except in the last block.

        The first block begins at sample `first`; all have `count` samples, or for None the rest.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    def count(self) -> int:
        """Return the number of samples of a channel; read the file if the header lacks it."""
        if self.num_samples is None:
            self.num_samples = sum(len(block) for block in self.blocks(self.sample_rate))
        return self.num_samples

    def cut_off(self, seconds: float) -> None:
        """Note that the file ends before the length stated in its header."""
        self.problems.append(
            f"is cut off: it ends {seconds:.2f} s before its header says; the audio there is used"
        )

    def goes_on(self, more: int) -> None:
        """Note that the file has bytes after the samples that its header counts."""
        self.problems.append(
            f"holds {more} bytes after its samples, perhaps of a recorder that did not write its "
            "length; they are not read"
        )


def source_of(value: object) -> Source | None:
    """Return a path, the bytes of an audio file, or an open binary file as a source.

    Return None for other values. An open file is read from its position to its end.
    """
    if isinstance(value, (str, Path, FilePart)):
        return value
    read = getattr(value, "read", None)
    data = read() if callable(read) else value
    if isinstance(data, str):
        raise AudioError("audio must be read from a binary file: open it with mode 'rb'")
    if not isinstance(data, (bytes, bytearray, memoryview)):
        return None
    if not len(data):
        raise AudioError("audio in memory is empty (0 bytes)")
    return io.BytesIO(data)


def name_of(source: Source) -> str:
    """Return a file's name for messages."""
    if isinstance(source, FilePart):
        source = source.path
    return shown(Path(source), 300) if isinstance(source, (str, Path)) else "audio in memory"


def bytes_of(source: Source) -> BinaryIO:
    """Open a file, or bytes in memory, for reading from the first byte."""
    if isinstance(source, (str, Path)):
        return Path(source).open("rb")
    if isinstance(source, FilePart):
        return cast(BinaryIO, FilePart(source.path, source.start, source.end))
    return io.BytesIO(source.getbuffer())


def regrouped(parts: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """Yield arrays (n, channels) of any lengths as blocks of `size` samples and a last rest."""
    waiting: list[np.ndarray] = []
    length = 0
    for part in parts:
        waiting.append(part)
        length += len(part)
        if length >= size:
            joined = np.concatenate(waiting)
            whole = length // size * size
            yield from np.split(joined[:whole], range(size, whole, size))
            waiting, length = [joined[whole:]], length - whole
    if length:
        yield np.concatenate(waiting)
