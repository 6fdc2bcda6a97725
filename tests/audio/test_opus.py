"""Opus packets: what goes in comes out, and bytes that are none are refused."""

import numpy as np
import pytest

from asrkit import audio
from asrkit.audio.opus import LARGEST, PACKET, RATE, OpusDecoder, OpusEncoder
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
