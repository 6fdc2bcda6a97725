"""Audio files that libsndfile reads exactly: wav, flac, aiff, au, caf, Ogg and a dozen others."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import soundfile

from asrkit.audio.chunks import unread
from asrkit.audio.file import (
    MAX_SECONDS,
    TOLERANCE,
    AudioError,
    AudioFile,
    Source,
    bytes_of,
    name_of,
)

UNKNOWN_SIZES = (0x7FFFF000, 0xFFFFF000)  # a size with these bits means "to the end"
# Stated and real sizes of the file and its chunks in libsndfile's log, not of its other doubts.
SIZES = re.compile(r"^(?! *(?:Bytes/sec|Block Align)).*?(\d+) \(?should be (\d+)", re.MULTILINE)
# Sizes of an AU file in libsndfile's log: of the file, its header, and the samples by its header.
AU_SIZES = re.compile(r"Length : (\d+)\n.snd\n *Data Offset : (\d+)\n *Data Size *: (\d+)\n")
# Formats without a header, which can only be recognised by the file name extension.
HEADERLESS = {".gsm": "GSM610", ".vox": "VOX_ADPCM"}
CHUNKED = ("AIFF", "CAF", "SVX")  # formats with chunks, as wav, whose end libsndfile does not log
UNKNOWN = 1  # libsndfile's error code for a format that it does not recognise
SHORTEST_CUT = 0.01  # seconds; some writers include their header in the size


class SndFile(AudioFile):
    """A file that libsndfile reads.

    Args:
        file: open file, which `close` closes.
        instead: opens the same source in another reader, which continues where libsndfile fails.
    """

    def __init__(
        self,
        file: soundfile.SoundFile,
        source: Source,
        instead: Callable[[], AudioFile],
        known: Sequence[str] = (),
        ending: str = "",
    ) -> None:
        size = None if "MPEG" in file.subtype else file.frames  # guessed lengths are counted
        super().__init__(name_of(source), file.samplerate, file.channels, size)
        self._file, self._source, self._instead, self._known = file, source, instead, known
        self._ending = ending

    def blocks(self, size: int, first: int = 0, count: int | None = None) -> Iterator[np.ndarray]:
        self.problems = []
        wanted = self._file.frames - first
        wanted = max(0, wanted if count is None else min(wanted, count))
        done, failure = 0, None
        try:
            # SoundFile.blocks would repeat old samples if a file is shorter than its header says.
            for block in self._read(size, first, wanted):
                done += len(block)
                yield block
        except soundfile.LibsndfileError as error:
            failure = error.error_string
        missing = (wanted - done) / self.sample_rate
        if failure or missing > TOLERANCE:  # headers of lossy formats state slightly more samples
            yield from self._rest(size, first + done, wanted - done, failure)
        elif first + wanted >= self._file.frames:
            self.problems += self._known
            if (seconds := self._cut_seconds()) > SHORTEST_CUT:
                self.cut_off(seconds)
            if more := self._unread():
                self.goes_on(more)

    def _read(self, size: int, first: int, wanted: int) -> Iterator[np.ndarray]:
        """Yield the next blocks of the file, without samples before `first`."""
        if self._file.seekable():
            self._file.seek(first)
            skipped = 0
        else:
            self._file.close()  # every call reads from the start
            self._file, skipped = open_sndfile(self._source, self._ending), first
        while skipped:
            skipped -= len(block := self._block(min(size, skipped)))
            if not len(block):
                return
        while wanted > 0 and len(block := self._block(min(size, wanted))):
            wanted -= len(block)
            yield block

    def _block(self, size: int) -> np.ndarray:
        samples: np.ndarray = self._file.read(size, dtype="float32", always_2d=True)
        return samples

    def _rest(self, size: int, first: int, count: int, failure: str | None) -> Iterator[np.ndarray]:
        """Yield the samples that another reader finds after those that libsndfile could read."""
        done = 0
        try:
            other = self._instead()
        except AudioError:
            other = None
        if other is not None:
            try:
                for block in other.blocks(size, first, count):
                    done += len(block)
                    yield block
                self.problems += other.problems
            finally:
                other.close()
        if failure and not self.problems:
            self.problems.append(f"is damaged ({failure}); the parts that decode are used")
        if not first + done:
            raise AudioError(f"{self.name} is damaged: {failure or 'no sample can be read'}")
        missing = (count - done) / self.sample_rate
        if missing > TOLERANCE and not any("cut off" in line for line in self.problems):
            self.problems.append(
                f"is damaged ({failure or 'it ends early'}): its last {missing:.2f} s could not be "
                "read"
            )

    def _cut_seconds(self) -> float:
        """Return the seconds by which the file ends before its header says, or 0."""
        seconds = self._file.frames / self.sample_rate
        if self._file.format == "NIST" and (stated := nist_count(self._source)):
            return max(0.0, (stated - self._file.frames) / self.sample_rate)
        for each in SIZES.finditer(self._file.extra_info):
            stated, real = map(int, each.groups())
            if 0 < real < stated and not any(stated & bits == bits for bits in UNKNOWN_SIZES):
                return seconds * (stated - real) / real
        return 0.0

    def _unread(self) -> int:
        """Return the number of bytes after the samples that the header counts."""
        if self._file.format in CHUNKED:
            with bytes_of(self._source) as data:
                return unread(data)
        found = AU_SIZES.search(self._file.extra_info)
        if self._file.format != "AU" or found is None:
            return 0
        length, start, size = map(int, found.groups())
        return max(0, length - start - size)

    def close(self) -> None:
        self._file.close()


def open_sndfile(source: Source, ending: str = "") -> soundfile.SoundFile:
    """Open a file with libsndfile.

    Args:
        ending: extension of the file's own name, if its path has another one.

    Raises:
        soundfile.LibsndfileError: if libsndfile cannot open it.
        AudioError: for samples without a header.
        OSError: if the file does not exist.
    """
    if not isinstance(source, (str, Path)):
        return soundfile.SoundFile(bytes_of(source))
    path = Path(source).absolute()  # libsndfile would take "-" for standard input
    name = os.fsencode(path) if os.name == "posix" else path  # soundfile cannot encode every name
    try:
        file = soundfile.SoundFile(name)
    except TypeError as error:  # soundfile takes .raw for samples without a header
        raise AudioError(
            f"{name_of(source)} is headerless audio: give it a header, or stream it as -"
        ) from error
    except soundfile.LibsndfileError as error:
        if error.code != UNKNOWN or ending not in HEADERLESS:
            raise
        subtype = HEADERLESS[ending]
        return soundfile.SoundFile(name, "r", 8000, 1, subtype, format="RAW")
    if file.format == "RAW" and path.suffix.lower() not in HEADERLESS:
        file.close()  # libsndfile takes all that is called .au or .snd for telephone samples
        raise soundfile.LibsndfileError(UNKNOWN)
    return file


def is_exact(file: soundfile.SoundFile) -> bool:
    """Return whether libsndfile reads and counts all samples of a file exactly.

    Exceptions are MPEG audio (some lengths are guessed), GSM in wav (some files get another block),
    a file without its length in the header, and a header that libsndfile does not parse.
    """
    return (
        0 < file.frames <= MAX_SECONDS * file.samplerate
        and "MPEG" not in file.subtype
        and file.subtype != "GSM610"
        and "Exiting parser" not in file.extra_info
    )


def nist_count(source: Source) -> int | None:
    """Return the samples of a channel in a NIST SPHERE header, which libsndfile does not check."""
    with bytes_of(source) as data:
        found = re.search(rb"sample_count -i (\d{1,18})\s", data.read(1024))
    return int(found[1]) if found else None
