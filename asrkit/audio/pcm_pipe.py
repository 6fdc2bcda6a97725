"""Reading a pipe while it is written: raw 16-bit samples, 16-bit WAV, or a format of FFmpeg."""

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, cast

import numpy as np

from asrkit.audio.ffmpeg import FFmpegFile, mp3_rate
from asrkit.audio.reading import MAX_CHANNELS, AudioError, Mixer, part_of_file
from asrkit.audio.resampler import SAMPLE_RATE

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
MP3_KBITS = {  # bit rates of layer III by index, for MPEG-1, and for MPEG-2 and 2.5
    True: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),
    False: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
}
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

    For formats that FFmpeg reads, packets are float32 samples: (n,), mixed to mono, or with
    `channels` (n, channels).

    Args:
        file: raw little-endian samples, a WAV file, or a file in another format. It need not be
            seekable. An incomplete sample at the end is dropped.
        sample_rate: rate of raw samples; 16 kHz if None.
        channels: interleaved channels of raw samples; None for mono, and to mix other formats.
    """
    head = file.read(12)
    if not head:
        raise AudioError("standard input is empty (0 bytes)")
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        form = wav_format(file)
        return form.sample_rate, packets(file.read, form, packet_ms)
    if may_be_mpeg(head):
        head += file.read(PROBED - len(head))
    pipe = Pipe(head, file)
    if (name := container_of(head)) is not None:
        return decoded(pipe, name, packet_ms, channels is None)
    form = PCMFormat(sample_rate or SAMPLE_RATE, channels or 1, None)
    return form.sample_rate, packets(pipe.read, form, packet_ms)


class Pipe:
    """An open file whose first bytes were already read; it is not seekable."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self._head, self._file = head, file

    def read(self, count: int) -> bytes:
        taken, self._head = self._head[:count], self._head[count:]
        return taken + self._file.read(count - len(taken))

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Keep the pipe open: its owner closes it."""


def decoded(pipe: Pipe, name: str, packet_ms: int, mix: bool) -> tuple[int, Iterator[np.ndarray]]:
    """Return the rate and the packets of a pipe in a format of FFmpeg, mixed to mono or not."""
    try:
        audio = FFmpegFile(cast(BinaryIO, pipe), "standard input")
    except AudioError as error:
        raise AudioError(
            f"standard input is {name}, which cannot be read: {error}; {ADVICE}"
        ) from None
    found = part_of_file(audio, max(1, audio.sample_rate * packet_ms // 1000))
    if not mix:
        return audio.sample_rate, found

    def mixed() -> Iterator[np.ndarray]:
        mixer = Mixer(audio.name)
        yield from map(mixer, found)
        mixer.warn()

    return audio.sample_rate, mixed()


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


def may_be_mpeg(head: bytes) -> bool:
    """Return whether these may be the first bytes of MP3, AAC or MPEG-TS; samples may match too."""
    return head[:1] == b"G" or (head[:1] == b"\xff" and head[1:2] >= b"\xe0")


def container_of(head: bytes) -> str | None:
    """Return the name of the audio format that begins with these bytes; None for samples."""
    if head[4:8] == b"ftyp":
        return "MP4"
    for magic, name in CONTAINERS.items():
        if head.startswith(magic):
            return name
    starts = range(0, FRAMES * PACKET_BYTES, PACKET_BYTES)
    if len(head) > starts[-1] and all(head[at] == 0x47 for at in starts):
        return "MPEG-TS"
    for name, length in (("MP3", mp3_frame_bytes), ("AAC", aac_frame_bytes)):
        at = found = 0
        while at + 6 <= len(head) and (size := length(head[at : at + 6])):
            at, found = at + size, found + 1
        if found >= FRAMES:
            return name
    return None


def mp3_frame_bytes(head: bytes) -> int:
    """Return the length of an MPEG audio frame, layer III, by its header; 0 for other bytes."""
    if head[0] != 0xFF or head[1] & 0xE6 != 0xE2 or head[1] >> 3 & 3 == 1:
        return 0
    is_mpeg1, rate = mp3_rate(head)
    kbits = MP3_KBITS[is_mpeg1][head[2] >> 4]
    return (144 if is_mpeg1 else 72) * kbits * 1000 // rate + (head[2] >> 1 & 1) if rate else 0


def aac_frame_bytes(head: bytes) -> int:
    """Return the length of an AAC frame in ADTS by its header; 0 for other bytes."""
    if head[0] != 0xFF or head[1] & 0xF6 != 0xF0:
        return 0
    size = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    return size if size > 6 else 0
