"""Files that libsndfile reads and counts exactly: WAV, FLAC, AIFF, AU, CAF, W64 and Ogg."""

import io
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import BinaryIO

import numpy as np
import soundfile

from asrkit.audio.reader import AudioFile, bytes_after, cut_off
from asrkit.audio.samples import MAX_SECONDS, AudioError, Source, bytes_of

READ = 1 << 16  # samples of a channel that are read at once
BEGINNINGS = [
    b"RIFF", b"RIFX", b"RF64", b"riff", b"FORM", b"fLaC", b".snd", b"caff", b"OggS", b"Crea",
]  # fmt: skip
# Stated and real sizes of a file and its chunks in libsndfile's log, not of its other doubts.
SIZES = re.compile(r"^(?! *(?:Bytes/sec|Block Align)).*?(\d+) \(?should be (\d+)", re.MULTILINE)
UNKNOWN_SIZES = (0x7FFFF000, 0xFFFFF000)  # a size with these bits means "to the end"
SHORTEST_CUT = 0.01  # seconds; some writers include their header in the size
FIRST_PAGE = b"OggS\0\2"  # start of each stream of an Ogg file
DAMAGED = ("reports a hole", "Corrupted", "lacks an end-of-stream")  # in the log of an Ogg file
UNTAGGED = ("FLAC", "AU", "CAF")  # formats with few bytes or none after the samples
PADDING = 8  # bytes after the samples that only fill the last chunk


class Exact(AudioFile):
    """A file that libsndfile reads."""

    def __init__(
        self, name: str, source: Source, data: BinaryIO, file: soundfile.SoundFile
    ) -> None:
        super().__init__(name, file.samplerate, file.channels, file.frames)
        self._source, self._data, self._file = source, data, file

    def is_exact(self) -> bool:
        """Return whether libsndfile reads and counts all samples.

        It guesses some lengths of MPEG audio, and reads another block of some GSM in wav. It may
        count chunks of W64 and 8SVX as samples. It reads only the first of joined Ogg files.
        """
        file, length = self._file, self._file.frames
        if file.format == "OGG":
            is_doubtful = self._is_damaged() or not self._has_one_stream()
        else:
            is_doubtful = file.format in ("W64", "SVX") and "Exiting parser" in file.extra_info
        is_guessed = "MPEG" in file.subtype or file.subtype == "GSM610"
        is_counted = 0 < length <= MAX_SECONDS * self.sample_rate
        return is_counted and not is_guessed and not is_doubtful

    def _is_damaged(self) -> bool:
        """Return whether libsndfile has left out pages of an Ogg file."""
        log = self._file.extra_info if self._file.format == "OGG" else ""
        return any(each in log for each in DAMAGED)

    def _has_one_stream(self) -> bool:
        streams, rest = 0, b""
        with closing(bytes_of(self._source)) as data:
            while block := data.read(1 << 20):
                streams += (rest + block).count(FIRST_PAGE)
                rest = block[1 - len(FIRST_PAGE) :]
        return streams == 1

    def samples(self, first: int, count: int | None) -> Iterator[np.ndarray]:
        length = self._file.frames
        end = length if count is None else min(length, first + count)
        place = min(first, end)
        with suppress(soundfile.LibsndfileError):
            if self._file.seekable():
                self._file.seek(place)
            else:  # some ADPCM, which is read from its start each time
                self._file.close()
                self._file, place = opened_unnamed(self._data), 0
            while place < end:
                # SoundFile.blocks would repeat old samples of a file that is cut off.
                block = self._file.read(min(end - place, READ), "float32", always_2d=True)
                if not len(block) or self._is_damaged():
                    break
                yield block[max(0, first - place) :]
                place += len(block)
        if place < end:
            yield from self._rest(max(place, first), end)
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
        place = self._data.tell()  # libsndfile's place, too
        more = self._data.seek(0, io.SEEK_END) - place
        self._data.seek(place)
        if more > PADDING and (self._file.format in UNTAGGED or "Exiting parser" in log):
            yield bytes_after(more)

    def close(self) -> None:
        self._file.close()
        self._data.close()


def opened_unnamed(data: BinaryIO) -> soundfile.SoundFile:
    """Open a file from its start without its name, by which libsndfile would guess formats."""
    data.seek(0)
    unnamed = data if isinstance(data, io.BytesIO) else data.fileno()
    return soundfile.SoundFile(unnamed, closefd=False)


def by_libsndfile(source: Source, name: str) -> Exact | None:
    """Return the file if libsndfile reads and counts all samples."""
    with ExitStack() as stack, suppress(soundfile.LibsndfileError):
        data = stack.enter_context(bytes_of(source))
        if data.read(4) in BEGINNINGS:
            file = stack.enter_context(opened_unnamed(data))
            exact = Exact(name, source, data, file)
            if exact.is_exact():
                stack.pop_all()
                return exact
    return None
