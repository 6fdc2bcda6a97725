"""The head of a pipe, and the packets of its samples."""

import io
import struct

import numpy as np
import pytest

from asrkit.audio import AudioError
from asrkit.audio.pcm_pipe import (
    PCMFormat,
    aac_frame_bytes,
    mp3_frame_bytes,
    packets,
    piped,
    wav_format,
)

RATE = 16000


def header(tag: int = 1, channels: int = 1, bits: int = 16) -> io.BytesIO:
    """The chunks of a wav file up to its samples."""
    kind = struct.pack("<HHIIHH", tag, channels, RATE, 2 * RATE * channels, 2, bits)
    return io.BytesIO(struct.pack("<4sI", b"fmt ", 16) + kind + struct.pack("<4sI", b"data", 8))


def test_a_wav_header_of_16_bits() -> None:
    assert wav_format(header(channels=2)) == PCMFormat(RATE, 2, 8)


@pytest.mark.parametrize(("options", "said"), [
    ({"bits": 24}, "24 bits, format 1, in 1 channels"),
    ({"tag": 3}, "16 bits, format 3, in 1 channels"),
    ({"channels": 0}, "format 1, in 0 channels"),
    ({"channels": 65535}, "format 1, in 65535 channels"),
])  # fmt: skip
def test_other_wav_headers_are_refused(options: dict[str, int], said: str) -> None:
    with pytest.raises(AudioError, match=said):
        wav_format(header(**options))


def test_an_empty_pipe_is_an_error() -> None:
    with pytest.raises(AudioError, match="standard input is empty"):
        piped(io.BytesIO(), 100)


@pytest.mark.parametrize(("packet_ms", "lengths"), [(10, [160] * 6 + [40]), (1000, [1000])])
def test_packets_have_their_length(packet_ms: int, lengths: list[int]) -> None:
    samples = np.arange(2000, dtype=np.int16).reshape(-1, 2)
    form = PCMFormat(RATE, 2, None)
    found = list(packets(io.BytesIO(samples.tobytes()).read, form, packet_ms))
    assert [len(each) for each in found] == lengths
    assert np.array_equal(np.concatenate(found), samples)


@pytest.mark.parametrize(("head", "size"), [
    ("fffb9000", 417),  # MPEG-1, 128 kbit/s, 44.1 kHz
    ("fffb9200", 418),  # padded
    ("fffb9400", 384),  # 48 kHz
    ("fff38400", 192),  # MPEG-2, 64 kbit/s, 24 kHz
    ("fff31400", 24),  # MPEG-2, 8 kbit/s
    ("ffe38400", 384),  # MPEG-2.5, 64 kbit/s, 12 kHz
    ("fffb0000", 0),  # free format
    ("fffb9c00", 0),  # a rate that is reserved
    ("ffeb9000", 0),  # a version that is reserved
    ("fffd9000", 0),  # layer II
    ("00fb9000", 0),
])  # fmt: skip
def test_the_length_of_an_mp3_frame(head: str, size: int) -> None:
    assert mp3_frame_bytes(bytes.fromhex(head)) == size


@pytest.mark.parametrize(("head", "size"), [
    ("fff150800a20", 0x51), ("fff950810a20", 0x851), ("fff15080001f", 0), ("fffb50800a20", 0),
    ("00f150800a20", 0),
])  # fmt: skip
def test_the_length_of_an_aac_frame(head: str, size: int) -> None:
    assert aac_frame_bytes(bytes.fromhex(head)) == size
