"""Reading a pipe while it is written: raw 16-bit samples, or 16-bit WAV."""

import struct
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from asrkit.audio.resampler import SAMPLE_RATE
from asrkit.audio.samples import MAX_CHANNELS, AudioError

CONTAINERS = {
    b"fLaC": "FLAC", b"OggS": "Ogg", b"ID3": "MP3", b"RIFF": "RIFF, but not WAV", b"RF64": "RF64",
    b"riff": "W64", b"RIFX": "RIFX", b"BW64": "BW64", b"NIST": "SPHERE", b"#!AM": "AMR",
    b"FORM": "AIFF", b"caff": "CAF", b".snd": "AU", b"\x1aE\xdf\xa3": "Matroska",
}  # fmt: skip
PCM, EXTENSIBLE = 1, 0xFFFE  # format tags of WAV
UNKNOWN_SIZE = (0, 0xFFFFFFFF)  # sizes of the data chunk if its writer could not seek back
PROBED = 8192  # bytes that are read to tell samples from MPEG audio: a quarter of a second
FRAMES = 3  # consecutive frames of MPEG audio that are not a coincidence
PACKET_BYTES = 188  # size of a packet of MPEG-TS
MAX_CHUNK = 1 << 24  # bytes of chunks that are skipped: tags, a picture
ADVICE = (
    "asrkit stream FILE reads files of all formats; a pipe may hold raw 16-bit samples or 16-bit "
    "WAV, as ffmpeg -i FILE -f s16le -ac 1 -ar 16000 - writes them"
)


class PCMFormat(NamedTuple):
    """The format of a stream of 16-bit samples."""

    sample_rate: int  # Hz
    num_channels: int
    num_bytes: int | None  # None: to the end of the stream


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
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        form, head = wav_format(file), b""
    else:
        form = PCMFormat(sample_rate or SAMPLE_RATE, channels or 1, None)
        if head[:1] == b"G" or (head[:1] == b"\xff" and head[1:2] >= b"\xe0"):  # MPEG, or samples
            head += file.read(PROBED - len(head))
        if (name := container_of(head)) is not None:
            raise AudioError(f"standard input is {name}, which is not read from a pipe; {ADVICE}")

    def read(count: int) -> bytes:
        nonlocal head
        taken, head = head[:count], head[count:]
        return taken + file.read(count - len(taken))

    return form.sample_rate, packets(read, form, packet_ms)


def packets(read: Callable[[int], bytes], form: PCMFormat, packet_ms: int) -> Iterator[np.ndarray]:
    """Yield packets of int16 samples (n, channels), from a function that reads n bytes."""
    frame = 2 * form.num_channels
    size, left = max(1, form.sample_rate * packet_ms // 1000) * frame, form.num_bytes
    while data := read(size if left is None else min(size, left)):
        left = None if left is None else left - len(data)
        whole = np.frombuffer(data[: len(data) // frame * frame], dtype="<i2").astype(np.int16)
        yield whole.reshape(-1, form.num_channels)


def wav_format(file: BinaryIO) -> PCMFormat:
    """Read a WAV header from its byte 12 up to the first sample, and return its format."""
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
            return PCMFormat(rate, channels, None if size in UNKNOWN_SIZE else size)
        if name == b"data" or size > MAX_CHUNK:
            break
        body = file.read(size + size % 2)
        kind = body if name == b"fmt " else kind
    raise AudioError(f"the WAV file on standard input has a damaged header; {ADVICE}")


def container_of(head: bytes) -> str | None:
    """Return the name of the audio format that begins with these bytes; None for samples."""
    names = [name for magic, name in CONTAINERS.items() if head.startswith(magic)]
    if head[4:8] == b"ftyp":
        return "MP4"
    if head[: FRAMES * PACKET_BYTES : PACKET_BYTES] == b"G" * FRAMES:
        return "MPEG-TS"
    if head[:1] == b"\xff":
        names += [codec.upper() for codec in ("mp3", "aac") if decoded(head, codec) >= FRAMES]
    return names[0] if names else None


def decoded(data: bytes, codec: str) -> int:
    """Return the number of frames of a codec that begin with the first byte."""
    import av

    decoder: Any = av.CodecContext.create(codec, "r")
    count = 0
    try:
        for packet in decoder.parse(data):
            count += len(decoder.decode(packet))
    except av.FFmpegError:
        return 0
    return count
