"""Audio files that libsndfile reads exactly: wav, flac, aiff, au, caf, Ogg and a dozen others."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from asrkit.audio.file import (
    MAX_SECONDS,
    TOLERANCE,
    AudioError,
    AudioFile,
    Source,
    bytes_of,
    name_of,
)

UNKNOWN_SIZES = (0x7FFFF000, 0xFFFFF000)  # a size with these bits stands for "until the end"
# In libsndfile's log: stated and real bytes of the file and its chunks. It doubts other fields too.
SIZES = re.compile(r"^(?! *(?:Bytes/sec|Block Align)).*?(\d+) \(?should be (\d+)", re.MULTILINE)
# Formats without a header, which are known by their ending alone.
HEADERLESS = {".gsm": "GSM610", ".vox": "VOX_ADPCM"}
SHORTEST_CUT = 0.01  # seconds; some writers count their header in


class SndFile(AudioFile):
    """A file that libsndfile reads.

    Args:
        file: the open file; closed by `close`.
        source: where it came from.
        instead: opens the same source in another reader. It goes on where libsndfile fails.
        known: lines about the end of the file that are known already.
        ending: as `open_sndfile` takes it.
    """

    def __init__(
        self,
        file: soundfile.SoundFile,
        source: Source,
        instead: Callable[[], AudioFile],
        known: Sequence[str] = (),
        ending: str = "",
    ) -> None:
        super().__init__(name_of(source), file.samplerate, file.channels, file.frames)
        self._file, self._source, self._instead, self._known = file, source, instead, known
        self._ending = ending

    def blocks(self, size: int, first: int = 0, count: int | None = None) -> Iterator[np.ndarray]:
        self.problems = []
        wanted = self._file.frames - first
        wanted = max(0, wanted if count is None else min(wanted, count))
        done, failure = 0, None
        try:
            # Not SoundFile.blocks: it repeats old samples when a file is shorter than its header.
            for block in self._read(size, first, wanted):
                done += len(block)
                yield block
        except soundfile.LibsndfileError as error:
            failure = error.error_string
        missing = (wanted - done) / self.sample_rate
        if failure or missing > TOLERANCE:  # headers of lossy formats count a little too much
            yield from self._rest(size, first + done, wanted - done, failure)
        elif first + wanted >= self._file.frames:
            self._report()

    def _read(self, size: int, first: int, wanted: int) -> Iterator[np.ndarray]:
        """The next blocks of the file, without those before `first`."""
        if self._file.seekable():
            self._file.seek(first)
            skipped = 0
        else:
            self._file.close()  # every call reads from the beginning
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
        """The samples that another reader finds behind those that libsndfile could read."""
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

    def _report(self) -> None:
        """Note what the file lacks, and what is not read of it."""
        self.problems += self._known
        if (seconds := self._cut_seconds()) > SHORTEST_CUT:
            self.cut_off(seconds)

    def _cut_seconds(self) -> float:
        """Seconds by which the file ends before its header says; 0 if it does not."""
        seconds = self._file.frames / self.sample_rate
        if self._file.format == "NIST" and (stated := nist_count(self._source)):
            return max(0.0, (stated - self._file.frames) / self.sample_rate)
        for each in SIZES.finditer(self._file.extra_info):
            stated, real = map(int, each.groups())
            if 0 < real < stated and not any(stated & bits == bits for bits in UNKNOWN_SIZES):
                return seconds * (stated - real) / real
        return 0.0

    def close(self) -> None:
        self._file.close()


def open_sndfile(source: Source, ending: str = "") -> soundfile.SoundFile:
    """The file as libsndfile opens it.

    Args:
        source: path of a file, or a file in memory.
        ending: ending of the file's own name, if its path has another name.

    Raises:
        soundfile.LibsndfileError: if it does not.
        AudioError: for headerless samples.
        OSError: if there is no such file.
    """
    if not isinstance(source, (str, Path)):
        return soundfile.SoundFile(bytes_of(source))
    form: dict[str, Any] = {}
    if ending in HEADERLESS:
        form = {"format": "RAW", "subtype": HEADERLESS[ending], "channels": 1, "samplerate": 8000}
    path = Path(source).absolute()  # or libsndfile takes "-" for standard input
    try:  # bytes, for soundfile cannot encode every name that a file may have
        return soundfile.SoundFile(os.fsencode(path) if os.name == "posix" else path, **form)
    except TypeError as error:  # soundfile takes .raw for headerless samples
        raise AudioError(
            f"{name_of(source)} is headerless audio: give it a header, or stream it as -"
        ) from error


def is_exact(file: soundfile.SoundFile) -> bool:
    """Whether libsndfile reads all samples of a file, and counts them.

    Not those of MPEG audio (it guesses the length of some), of GSM in wav (it adds a block to
    some), of a file without its length in the header, and of a header that it does not understand.
    """
    return (
        0 < file.frames <= MAX_SECONDS * file.samplerate
        and "MPEG" not in file.subtype
        and file.subtype != "GSM610"
        and "Exiting parser" not in file.extra_info
    )


def nist_count(source: Source) -> int | None:
    """The samples of a channel by a NIST SPHERE header, which libsndfile does not compare."""
    with bytes_of(source) as data:
        found = re.search(rb"sample_count -i (\d{1,18})\s", data.read(1024))
    return int(found[1]) if found else None
