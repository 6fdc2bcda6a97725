"""The head of a pipe, and the packets of its samples."""

import io
import struct

import numpy as np
import pytest

from asrkit.audio import AudioError
from asrkit.audio.pcm_pipe import PCMFormat, packets, piped, wav_format

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
