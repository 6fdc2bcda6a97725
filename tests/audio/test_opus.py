"""Opus packets: what goes in comes out, and bytes that are none are refused."""

import numpy as np
import pytest

from asrkit import audio
from asrkit.audio.opus import LARGEST, PACKET, PAST, PAST_BYTES, RATE, OpusDecoder, OpusEncoder
from asrkit.errors import UserError
from tests.conftest import speech


@pytest.mark.parametrize("rate", [8000, 16000, 44100, 48000])
def test_decoded_is_what_was_encoded(rate: int) -> None:
    time = np.arange(rate) / rate
    samples = 0.5 * np.sin(2 * np.pi * (200 + 500 * time) * time).astype(np.float32)
    encoder, decoder = OpusEncoder(rate), OpusDecoder()
    parts = np.split(samples, range(777, len(samples), 777))
    packets = [packet for part in parts for packet in encoder.encode(part)] + encoder.finish()
    decoded = [decoder.decode(packet) for packet in packets]
    assert {len(each) for each in decoded} == {PACKET}
    found = audio.resample(audio.mono(np.concatenate(decoded)), RATE)[104:]  # 6.5 ms at 16 kHz
    given = audio.resample(samples, rate)
    assert len(given) <= len(found) <= len(given) + 640
    found = found[: len(given)]
    assert np.corrcoef(found, given)[0, 1] > 0.95
    assert np.corrcoef(found[104:], given[:-104])[0, 1] < 0.5  # control: 6.5 ms later


@pytest.mark.parametrize("packet", [b"", b"\xff" * 20, bytes(LARGEST + 1)])
def test_what_is_no_packet(packet: bytes) -> None:
    decoder = OpusDecoder()
    with pytest.raises(UserError, match=r"an Opus packet"):
        decoder.decode(packet)
    encoder = OpusEncoder(RATE)
    good = encoder.encode(speech(0.1, rate=RATE)) + encoder.finish()
    assert len(decoder.decode(good[0])) == PACKET  # and it goes on


def test_padding_is_not_kept_with_a_call() -> None:
    """A packet may have 61 kB of it, and a call that waits keeps its latest packets."""
    encoder, decoder = OpusEncoder(RATE), OpusDecoder()
    packets = encoder.encode(speech(1.0, rate=RATE))
    for packet in packets:
        decoder.decode(packet)
    assert decoder.past(10**9) == packets[-PAST:]  # control: usual ones are all kept
    for packet in packets:
        decoder.decode(padded(packet, LARGEST // 4))
    kept = decoder.past(10**9)
    assert 0 < len(kept) < PAST
    assert sum(map(len, kept)) <= PAST_BYTES


def padded(packet: bytes, size: int) -> bytes:
    """A packet of one frame with padding, RFC 6716, 3.2.5."""
    count, last = divmod(size, 254)
    lengths = bytes([255] * count + [last])
    return bytes([packet[0] | 3, 0x41]) + lengths + packet[1:] + bytes(254 * count + last)
