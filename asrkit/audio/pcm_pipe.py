"""Reading a pipe while it is written: raw 16-bit samples, or 16-bit WAV."""

import wave
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np

from asrkit.audio.resampler import SAMPLE_RATE
from asrkit.audio.samples import MAX_CHANNELS, AudioError
from asrkit.errors import reason

CONTAINERS = {
    b"fLaC": "FLAC", b"OggS": "Ogg", b"RF64": "RF64", b"riff": "W64", b"RIFX": "RIFX",
    b"BW64": "BW64", b"NIST": "SPHERE", b"#!AM": "AMR", b"FORM": "AIFF", b"caff": "CAF",
    b".snd": "AU", b"\x1aE\xdf\xa3": "Matroska", b"ID3": "MP3", b"\xff\xfa": "MP3",
    b"\xff\xfb": "MP3", b"\xff\xf2": "MP3", b"\xff\xf3": "MP3", b"\xff\xe3": "MP3",
    b"\xff\xf1": "AAC", b"\xff\xf9": "AAC", b"G@": "MPEG-TS",
}  # fmt: skip
LARGEST = b"\xff\xff\xff\xff"
KNOWN = 1 << 31  # bytes; a pipe's writer who states more did not know the length
ADVICE = (
    "asrkit stream FILE reads files of all formats; a pipe may hold raw 16-bit samples or 16-bit "
    "WAV, as ffmpeg -i FILE -f s16le -ac 1 -ar 16000 - writes them"
)


def piped(
    file: BinaryIO, packet_ms: int, sample_rate: int | None = None, channels: int | None = None
) -> tuple[int, Iterator[np.ndarray]]:
    """Return the sample rate of a pipe in Hz, and its packets (n, channels) of int16 samples.

    Args:
        file: raw little-endian samples, or a WAV file. It need not be seekable. An incomplete
            sample at the end is dropped.
        sample_rate: rate of raw samples; 16 kHz if None.
        channels: interleaved channels of raw samples; None for mono.
    """
    head = file.read(12)
    if not head:
        raise AudioError("standard input is empty (0 bytes)")

    def read(count: int) -> bytes:
        nonlocal head
        start, head = head[:count], head[count:]
        return start + file.read(count - len(start))

    rate, num_channels, num_bytes = sample_rate or SAMPLE_RATE, channels or 1, None
    if head[:4] == b"RIFF":
        head = head[:4] + LARGEST + head[8:]  # the size, which some writers do not know
        rate, num_channels, num_bytes = wav_format(read)
    names = [name for start, name in CONTAINERS.items() if head.startswith(start)]
    if head[4:8] == b"ftyp":
        names = ["MP4"]
    if names:
        raise AudioError(f"standard input is {names[0]}, which is not read from a pipe; {ADVICE}")
    return rate, packets(read, num_channels, num_bytes, max(1, rate * packet_ms // 1000))


def packets(
    read: Callable[[int], bytes], num_channels: int, num_bytes: int | None, size: int
) -> Iterator[np.ndarray]:
    """Yield packets of `size` int16 samples (n, channels), from a function that reads n bytes.

    Args:
        num_bytes: bytes of all samples; None to read to the end of the stream.
    """
    frame = 2 * num_channels
    left = num_bytes
    while data := read(size * frame if left is None else min(size * frame, left)):
        left = None if left is None else left - len(data)
        whole = np.frombuffer(data[: len(data) // frame * frame], dtype="<i2").astype(np.int16)
        yield whole.reshape(-1, num_channels)


def wav_format(read: Callable[[int], bytes]) -> tuple[int, int, int | None]:
    """Read a WAV header up to the first sample; return rate, channels and bytes of samples.

    The bytes are None if the writer did not know them.
    """
    stream: Any = SimpleNamespace(read=read)
    try:
        with wave.open(stream, "rb") as head:  # which leaves the stream open
            rate, channels, width = head.getframerate(), head.getnchannels(), head.getsampwidth()
            size = head.getnframes() * channels * width
    except (wave.Error, EOFError) as error:
        problem = reason(error) if error.args else "its header is cut off"
        raise AudioError(
            f"the WAV file on standard input is not read ({problem}); {ADVICE}"
        ) from None
    if width != 2 or channels > MAX_CHANNELS:
        raise AudioError(
            f"the WAV file on standard input has samples of {8 * width} bits in {channels} "
            f"channels; {ADVICE}"
        )
    return rate, channels, size if 0 < size < KNOWN else None
