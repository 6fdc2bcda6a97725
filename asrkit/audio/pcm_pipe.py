"""Reading a pipe while it is written: raw 16-bit samples, or 16-bit WAV."""

import logging
import re
import wave
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np

from asrkit.audio.reader import cut_off
from asrkit.audio.resampler import SAMPLE_RATE
from asrkit.audio.samples import MAX_CHANNELS, TOLERANCE, AudioError

logger = logging.getLogger(__name__)

OTHERS = re.compile(  # the beginnings of other formats
    rb"fLaC|OggS|RF64|riff|RIFX|BW64|NIST|#!AM|FORM|caff|\.snd|\x1aE\xdf\xa3|ID3|"
    rb"\xff[\xe3\xf1-\xf3\xf9-\xfb]|G@|....ftyp",
    re.DOTALL,
)
LARGEST = b"\xff\xff\xff\xff"
KNOWN = 1 << 31  # bytes; a pipe's writer who states more did not know the length
ADVICE = (
    "asrkit stream FILE reads files of all formats; a pipe may hold raw 16-bit samples or 16-bit "
    "WAV, as ffmpeg -i FILE -f s16le -ac 1 -ar 16000 - writes them"
)


def piped(
    file: BinaryIO, packet_ms: int, sample_rate: int | None = None
) -> tuple[int, Iterator[np.ndarray]]:
    """Return the sample rate of a pipe in Hz, and its packets (n, channels) of int16 samples.

    Args:
        file: raw little-endian mono samples, or a WAV file. It need not be seekable. The log has a
            line if the file ends early or inside a sample, which is dropped.
        sample_rate: rate of raw samples; 16 kHz if None.
    """
    head = file.read(12)
    if not head:
        raise AudioError("standard input is empty (0 bytes)")
    if OTHERS.match(head):
        raise AudioError(f"standard input is a file that is not read from a pipe; {ADVICE}")

    def read(count: int) -> bytes:
        nonlocal head
        start, head = head[:count], head[count:]
        return start + file.read(count - len(start))

    rate, num_channels, left = sample_rate or SAMPLE_RATE, 1, KNOWN
    if head[:4] == b"RIFF":
        head = head[:4] + LARGEST + head[8:]  # the size, which some writers do not know
        rate, num_channels, left = wav_format(read)

    def packets() -> Iterator[np.ndarray]:
        nonlocal left
        frame = 2 * num_channels
        size, rest = max(1, rate * packet_ms // 1000) * frame, 0
        while data := read(min(size, left)):
            left -= len(data) if left < KNOWN else 0
            rest = len(data) % frame
            whole = np.frombuffer(data[: len(data) // frame * frame], dtype="<i2").astype(np.int16)
            yield whole.reshape(-1, num_channels)
        if TOLERANCE * rate * frame < left < KNOWN:
            logger.warning("standard input %s", cut_off(left / (rate * frame)))
        elif rest:
            logger.warning(
                "standard input ends inside a sample, which is left out: a pipe holds raw 16-bit "
                "samples, or 16-bit WAV"
            )

    return rate, packets()


def wav_format(read: Callable[[int], bytes]) -> tuple[int, int, int]:
    """Read a WAV header up to the first sample; return rate, channels and bytes of samples.

    The bytes are KNOWN if the writer did not know them.
    """
    stream: Any = SimpleNamespace(read=read)
    try:
        with wave.open(stream, "rb") as head:  # which leaves the stream open
            rate, channels, width = head.getframerate(), head.getnchannels(), head.getsampwidth()
            size = head.getnframes() * channels * width
        if width != 2 or channels > MAX_CHANNELS:
            raise wave.Error(f"samples of {8 * width} bits in {channels} channels")
    except (wave.Error, EOFError) as error:
        problem = str(error) or "its header is cut off"
        raise AudioError(
            f"the WAV file on standard input is not read ({problem}); {ADVICE}"
        ) from None
    return rate, channels, size if 0 < size < KNOWN else KNOWN
