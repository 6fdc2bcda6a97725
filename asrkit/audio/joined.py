"""Concatenated files: joined by cat, by a radio recorder, or by a Vorbis server."""

import functools
import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from asrkit.audio.file import AudioError, AudioFile, FilePart, Source, bytes_of, name_of, regrouped
from asrkit.audio.flac import counts_all
from asrkit.audio.placement import Converter, Frame, part_of

SIGNATURES = {  # keys: first four bytes; values: a mark that a file has once, and its offset
    b"fLaC": (b"fLaC\x00\x00\x00\x22", 0), b"RIFF": (b"WAVEfmt ", 8), b"RF64": (b"WAVEds64", 8),
    b"FORM": (b"AIFFCOMM", 8), b".snd": (b".snd\x00\x00", 0), b"caff": (b"caff\x00\x01", 0),
    b"riff": (b"riff\x2e\x91\xcf\x11", 0),
}  # fmt: skip
SEARCHED = 1 << 20  # bytes of a file in memory at once
REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))  # bytes with reversed bits


class Layout(NamedTuple):
    """The parts of a file."""

    starts: tuple[int, ...] = (0,)  # first byte of each concatenated file, in order; at least one
    damage: str | None = None  # line about damaged parts, or None
    is_complete: bool = True  # whether the last file is complete, as far as the format shows it
    has_tracks: bool = False  # whether an Ogg file has several streams at the same time
    is_counted: bool = True  # whether a FLAC file ends with the last sample that its header counts


class JoinedFile(AudioFile):
    """Concatenated files as one recording, at the rate and channels of the first one."""

    def __init__(
        self, source: Source, starts: tuple[int, ...], open_part: Callable[[Source], AudioFile]
    ) -> None:
        with bytes_of(source) as data:
            ends = [*starts[1:], data.seek(0, os.SEEK_END)]
        self._spans = list(zip(starts, ends, strict=True))
        self._source, self._open_part = source, open_part
        first = self._open(0)
        super().__init__(name_of(source), first.sample_rate, first.num_channels, None)
        first.close()

    def blocks(self, size: int, first: int = 0, count: int | None = None) -> Iterator[np.ndarray]:
        self.problems = []
        yield from regrouped(part_of(self._parts(size), first, count), size)

    def close(self) -> None:
        """Do nothing: parts are closed after reading."""

    def _parts(self, size: int) -> Iterator[np.ndarray]:
        convert = Converter(self.sample_rate, self.num_channels)
        for number in range(len(self._spans)):
            where = f"in part {number + 1} of {len(self._spans)} that are joined in it"
            try:
                part = self._open(number)
                try:
                    for block in part.blocks(size):
                        yield from convert(Frame(None, part.sample_rate, block, False))
                    self.problems += [f"{each} ({where})" for each in part.problems]
                finally:
                    part.close()
            except AudioError as error:
                self.problems.append(f"cannot be read {where}: {error}")
        yield convert.rest()

    def _open(self, number: int) -> AudioFile:
        start, end = self._spans[number]
        if isinstance(self._source, (str, Path)):
            return self._open_part(FilePart(Path(self._source), start, end))
        with bytes_of(self._source) as data:
            data.seek(start)
            return self._open_part(io.BytesIO(data.read(end - start)))


def layout_of(source: Source) -> Layout:
    """Find files that are concatenated in one, and damaged pages of Ogg.

    The result for a path is cached until the file changes: a corpus may read many parts of it.
    """
    if isinstance(source, (str, Path)):
        stat = Path(source).stat()
        return layout_at(str(source), stat.st_size, stat.st_mtime_ns)
    with bytes_of(source) as data:
        return layout_in(data)


@functools.lru_cache(maxsize=4096)
def layout_at(path: str, size: int, modified: int) -> Layout:
    with Path(path).open("rb") as data:
        return layout_in(data)


def layout_in(data: BinaryIO) -> Layout:
    """Return the layout of an open file."""
    head = data.read(8)
    size = data.seek(0, os.SEEK_END)
    data.seek(0)
    if head[:4] == b"OggS":
        return ogg_layout(data)
    if head[:4] not in SIGNATURES or 0 <= size - stated_size(head) <= 1:
        return Layout()
    signature, offset = SIGNATURES[head[:4]]
    places = [at - offset for at in occurrences(data, signature)]
    starts = (0, *(each for each in places if each > 0))
    return Layout(starts, is_counted=head[:4] != b"fLaC" or len(starts) > 1 or counts_all(data))


def stated_size(head: bytes) -> int:
    """Return the size of a file stated by its RIFF or AIFF header; 0 for other formats."""
    formats = {b"RIFF": "<I", b"FORM": ">I"}
    if head[:4] not in formats or len(head) < 8:
        return 0
    return 8 + int(struct.unpack(formats[head[:4]], head[4:8])[0])


def occurrences(data: BinaryIO, signature: bytes) -> Iterator[int]:
    """Yield the places in a file with the signature of a format."""
    before, start = b"", 0
    while block := data.read(SEARCHED):
        searched, at = before + block, -1
        while (at := searched.find(signature, at + 1)) >= 0:
            yield start + at
        before = searched[1 - len(signature) :]
        start += len(searched) - len(before)


def ogg_layout(data: BinaryIO) -> Layout:
    """Check an Ogg file (RFC 3533) page by page.

    A page's header has its flags (2 on the first page of a stream, 4 on the last), its stream's
    serial number, its own number, a checksum and its length. libsndfile skips pages with a wrong
    checksum, so the audio after them would come too early.
    """
    starts: list[int] = []
    flags, pages, bad, beginnings = 2, 0, 0, 0
    following: dict[bytes, int] = {}  # number of the next page of each stream
    while len(head := data.read(27)) == 27:
        if head[:4] != b"OggS":
            if not next_page(data, len(head)):
                break
            bad, pages = bad + 1, pages + 1
            following.clear()  # the next page's number does not fit, but that page is whole
            continue
        at, lengths = data.tell() - 27, data.read(head[26])
        body = data.read(sum(lengths))
        if len(lengths) < head[26] or len(body) < sum(lengths):
            flags = 0  # end of the file
            break
        begins, serial, number = head[5] & 2, head[14:18], int.from_bytes(head[18:22], "little")
        if begins and (not starts or not flags & 2):
            starts.append(at)
        beginnings += bool(begins and len(starts) == 1)
        flags, pages = head[5], pages + 1
        page = head[:22] + bytes(4) + head[26:] + lengths + body
        changed = ogg_checksum(page) != int.from_bytes(head[22:26], "little")
        bad += changed or (not begins and number != following.get(serial, number))
        following[serial] = number + 1
    damage = f"is damaged: at least {bad} of its {pages} pages" if bad else None
    return Layout(tuple(starts) or (0,), damage, bool(flags & 4), beginnings > 1)


def next_page(data: BinaryIO, length: int) -> bool:
    """Go to the next page after `length` bytes that are not a page; return whether there is one."""
    data.seek(1 - length, os.SEEK_CUR)
    start = data.tell()
    at = next(occurrences(data, b"OggS"), None)
    if at is not None:
        data.seek(start + at)
    return at is not None


def ogg_checksum(page: bytes) -> int:
    """Return the CRC of an Ogg page: zlib's polynomial, but with bits in reverse order."""
    crc = zlib.crc32(page.translate(REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{crc:032b}"[::-1], 2)
