"""Whether the header of a FLAC file counts all of its samples."""

import io
import time
from collections.abc import Callable

import av
import numpy as np
import pytest
import soundfile

from asrkit.audio.flac import counts_all, crc, frame_end


def by_libsndfile(samples: np.ndarray) -> bytes:
    data = io.BytesIO()
    soundfile.write(data, samples, 16000, format="FLAC")
    return data.getvalue()


def by_ffmpeg(samples: np.ndarray) -> bytes:
    data = io.BytesIO()
    with av.open(data, "w", format="flac") as file:
        stream = file.add_stream("flac", rate=16000, layout="mono")
        frame = av.AudioFrame.from_ndarray(samples[None], "s16", "mono")
        frame.sample_rate = 16000
        file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return data.getvalue()


def stated(data: bytes, total: int) -> bytes:
    """The file with another number of samples in its header."""
    return data[:22] + total.to_bytes(4, "big") + data[26:]


@pytest.mark.parametrize("encoder", [by_libsndfile, by_ffmpeg])
@pytest.mark.parametrize("length", [4096, 4097, 8300, 16000, 300_000, 4096 * 140 + 5])
def test_it_counts_all(encoder: Callable[[np.ndarray], bytes], length: int) -> None:
    samples = np.random.default_rng(0).integers(-9000, 9000, length).astype(np.int16)
    data = encoder(samples)
    assert counts_all(io.BytesIO(data))
    assert counts_all(io.BytesIO(data + b"TAG" + bytes(125)))  # an ID3v1 tag
    assert counts_all(io.BytesIO(stated(data, 0)))  # no length
    # The controls: another count, and then a frame that does not fit its CRC.
    assert not counts_all(io.BytesIO(stated(data, length // 2)))
    assert not counts_all(io.BytesIO(data + encoder(samples[:2000])[42:]))
    assert counts_all(io.BytesIO(stated(data[:-1] + bytes([data[-1] ^ 1]), length // 2)))


def header(block: int, number: bytes, more: bytes = b"", variable: bool = False) -> bytes:
    """A frame's header of 16 kHz, mono, 16 bits; `block` is the code of its number of samples."""
    data = bytes([0xFF, 0xF8 | variable, block << 4 | 5, 0x08]) + number + more
    return data + bytes([crc(data, 0x07, 8)])


@pytest.mark.parametrize(("data", "end"), [
    (header(12, b"\0"), 4096),
    (header(12, b"\x7f"), 128 * 4096),
    (header(12, b"\xc2\x80"), 129 * 4096),
    (header(12, b"\xe1\x80\x80"), 4097 * 4096),
    (header(12, b"\xe1\x80\x80", variable=True), 4096 + 4096),
    (header(1, b"\5", variable=True), 5 + 192),
    (header(5, b"\5", variable=True), 5 + 4608),
    (header(6, b"\3", b"\x09"), 3 * 4096 + 10),
    (header(7, b"\3", b"\x01\x09"), 3 * 4096 + 0x10A),
    (header(12, b"\xfe" + 6 * b"\x80", variable=True), 4096),
    (header(12, b"\x80"), None),  # no first byte of a number
    (header(12, b"\xff"), None),
    (header(0, b"\0"), None),  # reserved
    (header(12, b"\0")[:-1] + b"\1", None),  # another CRC
])  # fmt: skip
def test_the_end_of_a_frame(data: bytes, end: int | None) -> None:
    assert frame_end(data + b"abc", 4096) == end


def test_many_headers_of_frames_take_little_time() -> None:
    data = stated(by_libsndfile(np.zeros(20_000, np.int16)), 5)
    header = data[data.rindex(b"\xff\xf8") :][:8]
    assert not counts_all(io.BytesIO(data))
    start = time.process_time()
    assert counts_all(io.BytesIO(data + header * 8000))
    assert time.process_time() - start < 2.0


def test_what_is_no_frame_is_passed_over() -> None:
    assert counts_all(io.BytesIO(b"fLaC"))
    assert counts_all(io.BytesIO(b"fLaC" + b"\xff\xf8" * 20_000))
