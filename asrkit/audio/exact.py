"""Files that libsndfile reads and counts exactly: wav, FLAC, AIFF, au, CAF and a dozen others."""

import io
import re
from collections.abc import Iterator
from contextlib import closing, suppress

import numpy as np
import soundfile

from asrkit.audio.containers import Container, bytes_after, cut_off, ogg_streams
from asrkit.audio.frames import Converter
from asrkit.audio.samples import MAX_SECONDS, TOLERANCE, AudioError, Blocks, Source, bytes_of

READ = 1 << 16  # samples of a channel that are read at once
# Stated and real sizes of a file and its chunks in libsndfile's log, not of its other doubts.
SIZES = re.compile(r"^(?! *(?:Bytes/sec|Block Align)).*?(\d+) \(?should be (\d+)", re.MULTILINE)
UNKNOWN_SIZES = (0x7FFFF000, 0xFFFFF000)  # a size with these bits means "to the end"
SHORTEST_CUT = 0.01  # seconds; some writers include their header in the size
UNTAGGED = ("FLAC", "AU", "CAF")  # formats with few bytes or none after the samples
DAMAGED = ("reports a hole", "Corrupted")  # parts of libsndfile's log of a damaged Ogg file
UNENDED = "lacks an end-of-stream bit"  # in its log of an Ogg file that is cut off
AHEAD = 8192  # bytes that libsndfile reads at once
PADDING = 8  # bytes after the samples that only fill the last chunk


class Exact:
    """A file that libsndfile reads."""

    def __init__(self, source: Source, name: str) -> None:
        self._source, self._name, self._data = source, name, bytes_of(source)
        try:
            self._file = self._open()
        except BaseException:
            self._data.close()
            raise
        self.sample_rate, self.num_channels = self._file.samplerate, self._file.channels
        self._size: int = self._file.frames
        self.num_samples = None if "MPEG" in self._file.subtype else self._size  # MPEG is guessed

    def _open(self) -> soundfile.SoundFile:
        """Open the file without its name, by which libsndfile would guess formats."""
        self._data.seek(0)
        in_memory = isinstance(self._data, io.BytesIO)
        return soundfile.SoundFile(self._data if in_memory else self._data.fileno(), closefd=False)

    @property
    def seconds(self) -> float:
        return self._size / self.sample_rate

    def is_exact(self) -> bool:
        """Return whether libsndfile reads and counts all samples.

        It guesses some lengths of MPEG audio, and reads another block of some GSM in wav. It may
        count chunks of W64 and 8SVX as samples. It reads only the first of joined Ogg files.
        """
        form, log = self._file.format, self._file.extra_info
        if form == "OGG":
            with closing(bytes_of(self._source)) as data:
                has_one = len(ogg_streams(data)) == 1
            return has_one and not any(each in log for each in DAMAGED)
        is_doubtful = form in ("W64", "SVX") and "Exiting parser" in log
        is_guessed = "MPEG" in self._file.subtype or self._file.subtype == "GSM610"
        is_counted = 0 < self._size <= MAX_SECONDS * self.sample_rate
        return is_counted and not is_guessed and not is_doubtful

    def _bytes_after(self) -> int:
        """Return the number of bytes after those that libsndfile has decoded."""
        place, at = self._data.tell(), -1  # libsndfile's place, too
        size = self._data.seek(0, io.SEEK_END)
        start = max(4, place - AHEAD)  # behind the mark of this file
        if self._file.format == "FLAC":
            self._data.seek(start)
            at = self._data.read(place - start).find(b"fLaC")  # of a short file that is joined
        self._data.seek(place)
        return size - (place if at < 0 else start + at)

    def samples(self, first: int, count: int | None, problems: list[str]) -> Blocks:
        """Yield `count` samples (n, channels) from `first` on; append a line for each problem."""
        end = self._size if count is None else min(self._size, first + count)
        place, failure = min(first, end), ""
        if self._file.seekable() and self.num_samples is not None:
            try:
                self._file.seek(place)
            except soundfile.LibsndfileError as error:
                failure = error.error_string
        else:  # every call reads from the start
            self._file.close()
            self._file, place = self._open(), 0
        while place < end and not failure:
            try:  # SoundFile.blocks would repeat old samples of a file that is cut off
                block = self._file.read(min(end - place, READ), "float32", always_2d=True)
            except soundfile.LibsndfileError as error:
                failure = error.error_string
            else:
                if not len(block):
                    failure = "it ends early" if self.num_samples is not None else ""
                    break
                if self._file.format == "OGG" and any(e in self._file.extra_info for e in DAMAGED):
                    failure = "its pages are damaged"  # libsndfile leaves them out
                    break
                yield block[max(0, first - place) :]
                place += len(block)
        if failure:
            yield from self._rest(max(place, first), end, failure, problems)
        elif end == self._size:
            problems += self._about_end()

    def _rest(
        self, place: int, end: int, failure: str, problems: list[str]
    ) -> Iterator[np.ndarray]:
        """Yield the samples that FFmpeg reads behind a damaged place."""
        with suppress(AudioError), closing(Container(bytes_of(self._source), self._name)) as other:
            scale = other.sample_rate / self.sample_rate  # FFmpeg decodes Opus at 48 kHz
            span = round(place * scale), round((end - place) * scale)
            convert = Converter(self.sample_rate, self.num_channels)
            for block in convert.all(other.samples(*span, problems), other.sample_rate):
                place += len(block)
                yield block
        if not place:
            raise AudioError(f"{self._name} is damaged: {failure}")
        missing = (end - place) / self.sample_rate
        if not problems or (missing > TOLERANCE and "cut off" not in "".join(problems)):
            problems.append(f"is damaged ({failure}): {missing:.2f} s of it cannot be read")

    def _about_end(self) -> Iterator[str]:
        """Yield a line if samples are missing at the end, or if bytes follow them."""
        log, form = self._file.extra_info, self._file.format
        pairs = [(int(stated), int(real)) for stated, real in SIZES.findall(log)]
        if form == "NIST":  # whose count libsndfile does not check
            with closing(bytes_of(self._source)) as data:
                found = re.search(rb"sample_count -i (\d{1,18})\s", data.read(1024))
            pairs = [(int(found[1]), self._size)] if found else []
        for stated, real in pairs:
            is_known = not any(stated & bits == bits for bits in UNKNOWN_SIZES)
            missing = self.seconds * (stated - real) / real if is_known and real else 0.0
            if missing > SHORTEST_CUT:
                yield cut_off(missing)
                break
        if UNENDED in log:
            yield "is cut off: its last page is missing"
        more = self._bytes_after()
        if more > PADDING and (form in UNTAGGED or "Exiting parser" in log):
            yield bytes_after(more)

    def close(self) -> None:
        self._file.close()
        self._data.close()
