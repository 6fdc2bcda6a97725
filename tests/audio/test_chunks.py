"""The bytes after the chunks of a file."""

import io
import struct

import pytest

from asrkit.audio.chunks import unread
from asrkit.audio.container import begins_as_mp3


def wav(samples: bytes, after: bytes = b"", size: int | None = None) -> bytes:
    stated = len(samples) if size is None else size
    return b"RIFF\0\0\0\0WAVE" + struct.pack("<4sI", b"data", stated) + samples + after


def caf(samples: bytes, after: bytes = b"", size: int | None = None) -> bytes:
    stated = len(samples) if size is None else size
    return b"caff\0\1\0\0" + struct.pack(">4sq", b"data", stated) + samples + after


def w64(samples: bytes, after: bytes = b"", size: int | None = None) -> bytes:
    stated = len(samples) if size is None else size
    head = b"riff" + GUID + bytes(8) + b"wave" + GUID
    return head + b"data" + GUID + struct.pack("<Q", 24 + stated) + samples + after


GUID = bytes.fromhex("f3acd3118cd100c04f8edb8a")
W64_TAG = b"list" + GUID + struct.pack("<Q", 24 + 3) + b"abc".ljust(8, b"\0")
TAG = struct.pack("<4sI", b"LIST", 3) + b"abc\0"  # of an odd size
CAF_TAG = struct.pack(">4sq", b"info", 3) + b"abc"
JUNK = b"\xa0\xb1" * 20


@pytest.mark.parametrize(("data", "found"), [
    (wav(b"1234"), 0),
    (wav(b"1234", TAG + TAG), 0),
    (wav(b"123\0", TAG, size=3), 0),
    (wav(b"1234", TAG + JUNK), len(JUNK)),
    (wav(b"1234", JUNK), len(JUNK)),
    (wav(b"1234", wav(b"12")), len(wav(b"12"))),  # joined
    (wav(b"1234", size=9), 0),  # cut off
    (wav(b"1234", TAG[:-2]), len(TAG) - 2),  # a tag that is cut off
    (wav(b"1234", b"1234567"), 0),  # too short for a chunk
    (caf(b"1234", CAF_TAG + CAF_TAG), 0),
    (caf(b"1234", CAF_TAG + JUNK), len(JUNK)),
    (caf(b"1234", size=-1), 0),  # to the end
    (caf(b"1234", size=1 << 62), 0),
    (caf(b"1234", struct.pack(">4sq", b"info", -99)), 12),
    (w64(b"12345678"), 0),
    (w64(b"1234\0\0\0\0", W64_TAG + W64_TAG, size=4), 0),
    (w64(b"12345678", W64_TAG + JUNK), len(JUNK)),
    (w64(b"12345678", w64(b"12345678")), len(w64(b"12345678"))),  # joined
    (w64(b"12345678", size=9), 0),  # cut off
    (b"fLaC" + JUNK, 0),
])  # fmt: skip
def test_bytes_after_chunks(data: bytes, found: int) -> None:
    assert unread(io.BytesIO(data)) == found


@pytest.mark.parametrize("count", [3, 4])
def test_bytes_after_samples_whose_size_is_not_stated(count: int) -> None:
    samples = b"1234"[:count]
    for after, found in ((TAG, 0), (JUNK, len(JUNK))):
        data = wav(samples.ljust(4, b"\0"), after, size=0)
        assert unread(io.BytesIO(data), after_samples=20 + count) == found


@pytest.mark.parametrize(("head", "is_mp3"), [
    (b"ID3\4", True), (b"\xff\xfb\x90", True), (b"\xff\xe3\x90", True), (b"\xff\xe0", True),
    (b"\xff\xd8\xff", False), (b"\0\xff\xfb", False), (b"\xff", False), (b"", False),
    (b"ID2\4", False), (b"RIFF", False),
])  # fmt: skip
def test_the_first_bytes_of_mp3(head: bytes, is_mp3: bool) -> None:
    data = io.BytesIO(head)
    assert begins_as_mp3(data) == is_mp3
    assert data.tell() == 0
