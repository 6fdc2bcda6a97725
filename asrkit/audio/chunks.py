"""The chunks of wav, W64, AIFF, 8SVX and CAF files, and what follows them."""

import os
import struct
from typing import BinaryIO

# Keys: first four bytes; values: first chunk, name and size that begin a chunk, alignment of chunks
LAYOUTS = {
    b"RIFF": (12, "<4sI", 2), b"RF64": (12, "<4sI", 2), b"FORM": (12, ">4sI", 2),
    b"caff": (8, ">4sq", 1), b"riff": (40, "<16sQ", 8),
}  # fmt: skip
GUID = b"\0\xc0\x4f\x8e\xdb\x8a"  # end of the names of W64's chunks
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
    at, layout, alignment = LAYOUTS[magic]
    if after_samples is not None:
        at = after_samples + -after_samples % alignment
    head = struct.calcsize(layout)
    while at + head <= size:
        data.seek(at)
        name, length = struct.unpack(layout, data.read(head))
        end = at + length + (head if len(name) == 4 else 0)  # W64 counts the head, too
        if name[:4] in SAMPLES and not at + head <= end <= size:
            return 0  # cut off, or without its size
        is_name = name.isascii() or name.endswith(GUID)
        if name[:4] in LAYOUTS or not is_name or not at + head <= end <= size:
            return size - at
        at = end + -end % alignment
    return 0
