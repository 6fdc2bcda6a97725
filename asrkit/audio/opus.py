"""Opus for live audio, through PyAV: encodes mono samples to raw packets and decodes packets.

A packet is as defined in RFC 6716, without Ogg or WebM. Codec state depends on earlier packets, so
a single decoder must decode packets in order.
"""

from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np

from asrkit.audio.samples import AudioError

RATE = 48_000  # Hz of decoded samples, for every rate of the encoder's input
PACKET = 960  # samples at RATE in a packet of the encoder: 20 ms
LARGEST = 1275 * 48  # bytes: 120 ms in frames of 2.5 ms
PAST = 25  # packets that a decoder in the middle of a stream decodes first
PAST_BYTES = 40_000  # limit of these: half a second at the highest bit rate; padding allows 61 kB


class OpusEncoder:
    """Encodes samples in packets of 20 ms; the first 6.5 ms of the decoded stream are silence."""

    def __init__(self, sample_rate: int) -> None:
        import av

        self._context = av.AudioCodecContext.create("libopus", "w")
        self._context.sample_rate, self._context.time_base = RATE, Fraction(1, RATE)
        self._context.layout, self._context.format = "mono", "flt"
        self._context.bit_rate = 32_000
        self.sample_rate = sample_rate

    def encode(self, samples: np.ndarray) -> list[bytes]:
        """Return the packets that these float32 samples (n,) complete."""
        import av

        if not len(samples):
            return []
        frame = av.AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
        frame.sample_rate = self.sample_rate
        return [bytes(packet) for packet in self._context.encode(frame)]

    def finish(self) -> list[bytes]:
        """Return packets with the remaining samples; silence fills the last one."""
        return [bytes(packet) for packet in self._context.encode(None)]

    def size(self, packet: bytes) -> int:
        """Return the number of samples that a packet decodes to."""
        return PACKET


class OpusDecoder:
    """Decodes packets to samples.

    Codec state cannot be saved. A decoder in the middle of a stream first decodes earlier packets:
    after 80 ms its output is close to that of a decoder of the whole stream (RFC 6716).

    Args:
        samples: number of samples of the stream so far.
        past: packets before them, from `past` of another decoder.
    """

    def __init__(self, samples: int = 0, past: Sequence[bytes] = ()) -> None:
        import av

        self._context = av.AudioCodecContext.create("libopus", "r")
        self._context.sample_rate, self._context.layout = RATE, "mono"
        self._latest: deque[tuple[int, bytes]] = deque(maxlen=2 * PAST)  # with samples so far
        self._samples = 0
        for packet in past:
            self.decode(packet)
        self._latest = deque(((samples, packet) for packet in past), maxlen=2 * PAST)
        self._samples = samples

    def past(self, samples: int) -> list[bytes]:
        """Return the packets before this sample of the stream that a new decoder needs."""
        packets = [packet for end, packet in self._latest if end <= samples][-PAST:]
        sizes = accumulate(len(packet) for packet in reversed(packets))
        few = sum(size <= PAST_BYTES for size in sizes)
        return packets[len(packets) - few :]

    def decode(self, packet: bytes) -> np.ndarray:
        """Return mono samples (n,) of the next packet, int16 at 48 kHz, or raise AudioError."""
        import av

        if not 1 <= len(packet) <= LARGEST:
            raise AudioError(f"an Opus packet must have 1 to {LARGEST} bytes, got {len(packet)}")
        try:
            frames = self._context.decode(av.Packet(packet))
        except av.FFmpegError:
            raise AudioError(f"{len(packet)} bytes are not an Opus packet") from None
        parts = [np.zeros(0, np.int16), *(frame.to_ndarray()[0] for frame in frames)]
        samples = np.concatenate(parts)
        self._samples += len(samples)
        self._latest.append((self._samples, packet))
        return samples
