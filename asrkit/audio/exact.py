"""Files that libsndfile reads and counts exactly: WAV, W64, FLAC and Ogg."""

import io
import mmap
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import BinaryIO

import numpy as np
import soundfile

from asrkit.audio.reader import PADDING, AudioFile, bytes_after, cut_off
from asrkit.audio.samples import MAX_SECONDS, AudioError, Source, bytes_of

READ = 1 << 16  # samples of a channel that are read at once
BEGINNINGS = (b"RIFF", b"RF64", b"riff", b"fLaC", b"OggS")
CODECS = ("PCM_", "FLOAT", "DOUBLE", "ULAW", "ALAW", "VORBIS", "OPUS")  # beginnings of their names
# Stated and real sizes of a file and its chunks in libsndfile's log, not of its other doubts.
SIZES = re.compile(r"^(?! *(?:Bytes/sec|Block Align)).*?(\d+) \(?should be (\d+)", re.MULTILINE)
UNKNOWN_SIZES = (0x7FFFF000, 0xFFFFF000)  # a size with these bits means "to the end"
SHORTEST_CUT = 0.01  # seconds; some writers include their header in the size
FIRST_PAGE = b"OggS\0\2"  # start of each stream of an Ogg file
DAMAGED = ("reports a hole", "Corrupted")  # in the log of an Ogg file
CUT = "end-of-stream"  # in the log of an Ogg file that lacks it


class Exact(AudioFile):
    """A file that libsndfile reads."""

    def __init__(
        self, name: str, source: Source, data: BinaryIO, file: soundfile.SoundFile
    ) -> None:
        super().__init__(name, file.samplerate, file.channels, file.frames)
        self._source, self._data, self._file = source, data, file

    def is_exact(self) -> bool:
        """Return whether libsndfile reads and counts all samples.

        It guesses lengths of other codecs, may count chunks of W64 as samples, and reads only the
        first of joined Ogg files.
        """
        file = self._file
        if file.format == "OGG" and (self._is_damaged() or not self._has_one_stream()):
            return False
        if file.format == "W64" and "Exiting parser" in file.extra_info:
            return False
        is_known = file.subtype.startswith(CODECS)
        return is_known and 0 < file.frames <= MAX_SECONDS * self.sample_rate

    def _is_damaged(self) -> bool:
        """Return whether libsndfile has left out pages of an Ogg file."""
        log = self._file.extra_info if self._file.format == "OGG" else ""
        return any(each in log for each in DAMAGED)

    def _has_one_stream(self) -> bool:
        if isinstance(self._data, io.BytesIO):
            return self._data.getvalue().count(FIRST_PAGE) == 1
        with mmap.mmap(self._data.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(FIRST_PAGE) == data.rfind(FIRST_PAGE)

    def samples(self, first: int, count: int | None) -> Iterator[np.ndarray]:
        length = self._file.frames
        end = length if count is None else min(length, first + count)
        place = min(first, end)
        with suppress(soundfile.LibsndfileError):
            self._file.seek(place)
            while place < end:
                # SoundFile.blocks would repeat old samples of a file that is cut off.
                block = self._file.read(min(end - place, READ), "float32", always_2d=True)
                if not len(block) or self._is_damaged():
                    break
                yield block
                place += len(block)
        if place < end:
            yield from self._rest(place, end)
        elif end == length:
            self.problems += self._about_end()

    def _rest(self, place: int, end: int) -> Iterator[np.ndarray]:
        """Yield the samples that FFmpeg reads behind a damaged place."""
        from asrkit.audio.containers import Container

        try:
            data = bytes_of(self._source)
            with closing(Container(data, self.name, None, self.sample_rate)) as other:
                other.problems = self.problems
                for block in other.samples(place, end - place):
                    place += len(block)
                    yield block
        except AudioError:
            if not place:
                raise
        if place < end and not self.problems:
            missing = (end - place) / self.sample_rate
            self.problems.append(f"is damaged: {missing:.2f} s of it cannot be read")

    def _about_end(self) -> Iterator[str]:
        """Yield a line if samples are missing at the end, or if bytes follow them."""
        log, seconds = self._file.extra_info, self._file.frames / self.sample_rate
        for stated, real in ((int(a), int(b)) for a, b in SIZES.findall(log)):
            is_known = not any(stated & bits == bits for bits in UNKNOWN_SIZES)
            missing = seconds * (stated - real) / real if is_known and real else 0.0
            if missing > SHORTEST_CUT:
                yield cut_off(missing)
                break
        if self._file.format == "OGG" and CUT in log.lower():
            yield cut_off(0.0)
        place = self._data.tell()  # libsndfile's place, too
        more = self._data.seek(0, io.SEEK_END) - place
        self._data.seek(place)
        if more > PADDING and (self._file.format == "FLAC" or "Exiting parser" in log):
            yield bytes_after(more)

    def close(self) -> None:
        self._file.close()
        self._data.close()


def by_libsndfile(source: Source, name: str) -> Exact | None:
    """Return the file if libsndfile reads and counts all samples."""
    with ExitStack() as stack, suppress(soundfile.LibsndfileError):
        data = stack.enter_context(bytes_of(source))
        if data.read(4) in BEGINNINGS:
            data.seek(0)
            # Without its name, by which libsndfile would guess formats.
            unnamed = data if isinstance(data, io.BytesIO) else data.fileno()
            file = stack.enter_context(soundfile.SoundFile(unnamed, closefd=False))
            exact = Exact(name, source, data, file)
            if exact.is_exact():
                stack.pop_all()
                return exact
    return None
