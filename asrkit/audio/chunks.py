"""The chunks of wav, AIFF, 8SVX and CAF files, and what follows them."""

import os
import struct
from typing import BinaryIO

LAYOUTS = {  # keys: first four bytes; values: first chunk, and name and size that begin a chunk
    b"RIFF": (12, "<4sI"), b"RF64": (12, "<4sI"), b"FORM": (12, ">4sI"), b"caff": (8, ">4sq"),
}  # fmt: skip
SAMPLES = (b"data", b"SSND", b"BODY")  # names of the chunk of samples


def unread(data: BinaryIO, after_samples: int | None = None) -> int:
    """Count the bytes of a file after its chunks; 0 if all are chunks, such as tags.

    Args:
        data: open file.
        after_samples: byte after the samples, for headers that do not have their size; None for a
            chunk of samples that has it.
    """
    size = data.seek(0, os.SEEK_END)
    data.seek(0)
    magic = data.read(4)
    if magic not in LAYOUTS:
        return 0
    at, layout = LAYOUTS[magic]
    if after_samples is not None:
        at = after_samples + after_samples % 2
    head = struct.calcsize(layout)
    while at + head <= size:
        data.seek(at)
        name, length = struct.unpack(layout, data.read(head))
        end = at + head + length
        if name in SAMPLES and not at + head <= end <= size:
            return 0  # cut off, or without its size
        if name in LAYOUTS or not name.isascii() or not at + head <= end <= size:
            return size - at
        at = end + (length % 2 if magic != b"caff" else 0)
    return 0
