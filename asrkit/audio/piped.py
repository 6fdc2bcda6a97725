"""Reading a pipe while it is written: raw 16-bit samples, or a WAV file of them."""

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

import numpy as np

from asrkit.audio.io import MAX_CHANNELS, AudioError
from asrkit.audio.resampler import SAMPLE_RATE

CONTAINERS = {
    b"fLaC": "FLAC", b"OggS": "Ogg", b"ID3": "MP3", b"RIFF": "RIFF, but not WAV", b"RF64": "RF64",
    b"riff": "W64", b"RIFX": "RIFX", b"BW64": "BW64", b"NIST": "SPHERE", b"#!AM": "AMR",
    b"FORM": "AIFF", b"caff": "CAF", b".snd": "AU", b"\x1aE\xdf\xa3": "Matroska",
}  # fmt: skip
PCM, EXTENSIBLE = 1, 0xFFFE  # format tags of WAV
UNKNOWN_SIZE = (0, 0xFFFFFFFF)  # sizes of the data chunk if its writer could not seek back
MAX_CHUNK = 1 << 24  # bytes of any other chunk: tags, a picture
ADVICE = (
    "asrkit stream FILE reads files of all formats; a pipe must hold raw 16-bit samples or 16-bit "
    "WAV, as ffmpeg -i FILE -f s16le -ac 1 -ar 16000 - writes them"
)


class Layout(NamedTuple):
    """The format of a stream of 16-bit samples."""

    sample_rate: int  # Hz
    num_channels: int
    num_bytes: int | None  # None: until the end of the stream


def piped(
    file: BinaryIO, packet_ms: int, sample_rate: int | None = None
) -> tuple[int, Iterator[np.ndarray]]:
    """The sample rate in Hz of a pipe, and its packets of int16 samples (n, channels).

    Args:
        file: raw little-endian mono samples, or a WAV file; it need not be seekable. An incomplete
            sample at its end is dropped.
        packet_ms: length of a packet.
        sample_rate: of raw samples; 16 kHz if None.

    Raises:
        AudioError: for another format, or a header that is damaged.
    """
    head = file.read(12)
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        head, layout = b"", wav_layout(file)
    else:
        refuse_containers(head)
        layout = Layout(sample_rate or SAMPLE_RATE, 1, None)

    def read(count: int) -> bytes:
        nonlocal head
        taken, head = head[:count], head[count:]
        return taken + file.read(count - len(taken))

    return layout.sample_rate, packets(read, layout, packet_ms)


def packets(read: Callable[[int], bytes], layout: Layout, packet_ms: int) -> Iterator[np.ndarray]:
    """Packets of int16 samples (n, channels) from a function that reads so many bytes."""
    frame = 2 * layout.num_channels
    size, left = max(1, layout.sample_rate * packet_ms // 1000) * frame, layout.num_bytes
    while data := read(size if left is None else min(size, left)):
        left = None if left is None else left - len(data)
        whole = np.frombuffer(data[: len(data) // frame * frame], dtype="<i2").astype(np.int16)
        yield whole.reshape(-1, layout.num_channels)


def wav_layout(file: BinaryIO) -> Layout:
    """The layout by a WAV header, read from its byte 12 up to the first sample.

    Raises:
        AudioError: for samples that are not 16-bit PCM, or a damaged header.
    """
    kind = b""
    while len(head := file.read(8)) == 8:
        name, size = struct.unpack("<4sI", head)
        if name == b"data" and len(kind) >= 16:
            tag, channels, rate, _, _, bits = struct.unpack("<HHIIHH", kind[:16])
            if tag == EXTENSIBLE and len(kind) >= 26:
                (tag,) = struct.unpack("<H", kind[24:26])
            if (tag, bits) != (PCM, 16) or not 1 <= channels <= MAX_CHANNELS:
                raise AudioError(
                    f"the WAV file on standard input has samples of {bits} bits, format {tag}, in "
                    f"{channels} channels; {ADVICE}"
                )
            return Layout(rate, channels, None if size in UNKNOWN_SIZE else size)
        if name == b"data" or size > MAX_CHUNK:
            break
        body = file.read(size + size % 2)
        kind = body if name == b"fmt " else kind
    raise AudioError(f"the WAV file on standard input has a damaged header; {ADVICE}")


def refuse_containers(head: bytes) -> None:
    """Raises AudioError if these are the first bytes of a file in a known audio format."""
    name = next((name for magic, name in CONTAINERS.items() if head.startswith(magic)), None)
    if head[4:8] == b"ftyp":
        name = "MP4"
    if name is not None:
        raise AudioError(f"standard input is {name}; {ADVICE}")
