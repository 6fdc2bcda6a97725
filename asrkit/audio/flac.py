"""The last frame of a FLAC file (RFC 9639), which shows whether its header counts all samples."""

import os
import re
from functools import reduce
from itertools import islice
from typing import BinaryIO

SEARCHED = 1 << 16  # last bytes of a file; frames have 3 to 30 KB
MOST = 8  # headers of frames that are tried: a CRC of all of SEARCHED takes 40 ms
SYNC = re.compile(rb"\xff[\xf8\xf9]")  # of frames of one length, and of several
SIZES = {1: 192, **{code: 144 << code for code in range(2, 6)}, **{c: 1 << c for c in range(8, 16)}}


def counts_all(data: BinaryIO) -> bool:
    """Return whether a FLAC file ends with the sample with which it ends by its header.

    Return True also for a file without a length in its header, or whose last frame is not found.
    """
    data.seek(0)
    head = data.read(26)
    block_size = int.from_bytes(head[10:12], "big")  # the largest; frames of one length have it
    total = int.from_bytes(head[21:26], "big") & ((1 << 36) - 1)
    data.seek(max(0, data.seek(0, os.SEEK_END) - SEARCHED))
    tail = data.read()
    places = [each.start() for each in SYNC.finditer(tail)][::-1] if total else []
    ends = ((at, frame_end(tail[at : at + 16], block_size)) for at in places)
    for at, end in islice(((at, end) for at, end in ends if end is not None), MOST):
        if end == total:
            return True
        if not crc(tail[at:], 0x8005, 16):  # a whole frame: its CRC fits
            return False
    return True


def frame_end(head: bytes, block_size: int) -> int | None:
    """Return the number of the sample after a frame; None if this is not a frame's header."""
    head = head.ljust(16, b"\0")
    ones = 8 - (head[4] ^ 0xFF).bit_length()  # of the number, which is coded as in UTF-8
    if ones == 1 or ones > 7:
        return None
    number, at = head[4] & (0x7F >> ones), 4 + max(1, ones)
    for byte in head[5:at]:
        number = number << 6 | byte & 0x3F
    code, rate = head[2] >> 4, head[2] & 15
    size = SIZES.get(code, 0)
    if code in (6, 7):  # 8 or 16 bits after the number
        size = 1 + int.from_bytes(head[at : at + code - 5], "big")
        at += code - 5
    at += {12: 1, 13: 2, 14: 2}.get(rate, 0)
    if not size or crc(head[: at + 1], 0x07, 8):
        return None
    # The number is that of the first sample if the frames have several lengths, else the frame's.
    return (number if head[1] & 1 else number * block_size) + size


def crc(data: bytes, polynomial: int, bits: int) -> int:
    """Return the CRC of bytes; 0 if they end with their own."""
    top, mask = 1 << bits - 1, (1 << bits) - 1

    def add(value: int, byte: int) -> int:
        value ^= byte << bits - 8
        for _ in range(8):
            value = (value << 1 ^ (polynomial if value & top else 0)) & mask
        return value

    return reduce(add, data, 0)
