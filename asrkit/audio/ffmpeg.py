"""Audio files that FFmpeg reads, each sample at the time at which a player plays it."""

import os
import struct
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from asrkit.audio.file import (
    MAX_SECONDS,
    TOLERANCE,
    AudioError,
    AudioFile,
    NotAudioError,
    regrouped,
)
from asrkit.audio.placement import STEP_BACK, Converter, Frame, Placement, part_of, silence
from asrkit.errors import printable, shown

if TYPE_CHECKING:
    from av import AudioFrame, AudioStream
    from av.container import InputContainer

# The formats that FFmpeg may read: containers that hold their audio. Playlists name other files,
# and devices, scripts and protocols are not files at all.
CONTAINERS = (
    "aac,ac3,ac4,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,dsf,dss,dts,dtshd,dv,eac3,flac,flv,gxf,"
    "iff,ircam,loas,matroska,webm,mov,mp4,m4a,3gp,3g2,mp2,mp3,mpc,mpc8,mpeg,mpegts,mxf,nistsphere,"
    "nut,ogg,oma,qcp,rm,shn,sox,tak,truehd,tta,voc,w64,wav,wtv,wv"
)
FROM_ZERO = ("matroska", "mov", "avi", "flv", "asf", "nut", "mxf")  # formats whose times begin at 0
CLOCKS = ("mpegts", "mpeg")  # formats whose times are of a clock
COUNTED = ("aac",)  # formats without times: FFmpeg counts packets
STATED = ("flac", "mov", "aiff", "caf", "au", "w64", "asf")  # formats with a length in the header
XING = (b"Xing", b"Info")  # marks in the first frame of an MP3 that states its length
MP3_RATES = (44100, 48000, 32000, 0)  # Hz, of MPEG-1; half and a quarter of them in MPEG-2 and 2.5
MP3_PADDING = 0.25  # seconds of silence that encoders add at most, and players leave out
LATEST_START = 60.0  # seconds; a recording whose times begin later was cut out of a longer one
DTYPES = {"u8": "u1", "s16": "i2", "s32": "i4", "s64": "i8", "flt": "f4", "dbl": "f8"}  # of samples
MAX_FAILURES = 64  # errors in a row after which a container is not read any further


class FFmpegFile(AudioFile):
    """An audio track of a file that FFmpeg reads.

    FFmpeg gets an open file and may open nothing itself: it would take the name 12:30.m4a for a
    protocol, and read the files that a playlist names. Silence stands where the track has no
    samples: before its start, in holes of its time stamps, for packets that are damaged.

    Args:
        data: the open file, which `close` closes. If it cannot seek, it can be read once.
        name: the file's name in messages.
        track: number of the audio track, from 0; None for the default one.
        problems: lines about the file that are known already.

    Raises:
        AudioError: if FFmpeg does not read it, or it has no such track.
    """

    def __init__(
        self,
        data: BinaryIO,
        name: str,
        track: int | None = None,
        problems: Sequence[str] = (),
    ) -> None:
        self._data, self._asked, self._name, self._known = data, track, name, problems
        self._mp3_seconds = mp3_seconds(data) if data.seekable() else None
        self._container: InputContainer | None = None
        try:
            frames = self._open()
            first = next(frames, None)
            if first is None:
                raise AudioError(f"{name} has a header but no samples{self._undecodable()}")
            super().__init__(name, first.sample_rate, first.samples.shape[1], None)
        except BaseException:
            self.close()
            raise
        self._frames: Iterator[Frame] | None = chain([first], frames)

    def blocks(self, size: int, first: int = 0, count: int | None = None) -> Iterator[np.ndarray]:
        frames, self._frames = self._frames or self._open(), None
        self.problems = [*self._known, *self._about_tracks()]
        with closing(self._placed(frames)) as placed:
            yield from regrouped(part_of(placed, first, count), size)

    def close(self) -> None:
        if self._container is not None:
            self._container.close()
        self._data.close()

    def _open(self) -> Iterator[Frame]:
        """Open the container at its beginning; return the frames of the track."""
        if self._container is not None:
            self._container.close()
            self._data.seek(0)
        self._packets = self._damaged = 0
        self._lost, self._ends_early, self._end = 0.0, False, 0
        self._complaint = ""
        self._container = open_container(self._data)
        streams = self._container.streams.audio
        if not streams:
            kinds = " and ".join(sorted({each.type for each in self._container.streams}))
            raise AudioError(f"{self._name} has no audio track, only {kinds or 'a header'}")
        if self._asked is not None and not 0 <= self._asked < len(streams):
            raise AudioError(
                f"{self._name} has audio tracks 0 to {len(streams) - 1}, not {self._asked}"
            )
        default = (i for i, each in enumerate(streams) if int(each.disposition) & 1)
        self._track = next(default, 0) if self._asked is None else self._asked
        self._stream: AudioStream = streams[self._track]
        if self._stream.codec_context is None:
            raise AudioError(
                f"{self._name} has an audio track in a codec that FFmpeg does not know"
            )
        self._stream.codec_context.thread_count = 1  # so that damage is reported with its packet
        if self._stream.codec_context.name == "flac":  # whose frames have checksums
            self._stream.codec_context.options = {"err_detect": "crccheck+explode"}
        return self._decoded()

    def _decoded(self) -> Iterator[Frame]:
        """Decode the track; packets that cannot be decoded, and damage between them, are noted."""
        assert self._container is not None  # for mypy
        packets, failures = self._container.demux(self._stream), 0
        self._ends_damaged = damaged = False
        while failures < MAX_FAILURES:
            packet, frames = None, []
            try:
                with quiet() as messages:
                    if (packet := next(packets, None)) is None:
                        break
                    frames = packet.decode()
            except (MemoryError, EOFError) as error:
                if isinstance(error, MemoryError):
                    raise
                break
            except Exception:  # PyAV raises a dozen types, AttributeError among them
                self._ends_damaged = damaged = True
                if packet is None:
                    packets, failures = self._container.demux(self._stream), failures + 1
                    continue
                self._damaged += 1
                self._lost += float((packet.duration or 0) * (packet.time_base or 0))
            failures = 0
            self._packets += packet.size > 0
            self._end = max(self._end, (packet.pos or 0) + packet.size)
            for _, source, text in messages:
                if source == self._container.format.name:  # the demuxer's own
                    self._note(printable(text.strip()))
            for frame in frames:
                if frame.samples:
                    yield Frame(frame.time, frame.sample_rate, samples_of(frame), damaged)
                    self._ends_damaged = damaged = False
        if failures:
            self._note(f"the container cannot be read beyond packet {self._packets}")

    def _note(self, message: str) -> None:
        """Keep FFmpeg's message about a container."""
        if "prematurely" in message:
            self._ends_early = True
        else:
            self._complaint = self._complaint or message

    def _placed(self, frames: Iterator[Frame]) -> Generator[np.ndarray, None, None]:
        """The samples (n, channels) of frames, at the file's rate, and silence between them."""
        place = Placement(self._origin(), self._is(CLOCKS), not self._is(COUNTED))
        convert, position = Converter(self.sample_rate, self.num_channels), 0
        at_end = False
        try:
            for frame in frames:
                seconds = place.silence_before(frame, position / self.sample_rate)
                gap = silence(round(seconds * self.sample_rate), self.num_channels)
                for samples in chain(gap, convert(frame)):
                    position += len(samples)
                    if position > MAX_SECONDS * self.sample_rate:
                        raise AudioError(f"{self.name} is longer than {MAX_SECONDS // 3600} hours")
                    yield samples
            rest = convert.rest()
            position, at_end = position + len(rest), True
            yield rest
        finally:  # also where no more is read
            self._report(place.holes, position / self.sample_rate, at_end)

    def _report(self, holes: float, seconds: float, at_end: bool) -> None:
        """Note what is missing in so many seconds of the track, and at its end."""
        missing = self._stated_seconds() - seconds if at_end else 0.0
        is_cut = missing > (MP3_PADDING if self._is(("mp3",)) else TOLERANCE)
        if is_cut:
            self.cut_off(missing)
        elif at_end and self._ends_early:
            self.problems.append("is cut off within a packet; used as far as it goes")
        if at_end and self._is(("wav",)) and self._data.seekable():
            self._note_rest()
        if self._damaged > (self._ends_damaged and is_cut):
            self.problems.append(
                f"is damaged: {self._damaged} of {self._packets} packets ({self._lost:.2f} of "
                f"{seconds:.2f} s) cannot be decoded and are left silent"
            )
        elif self._complaint and not (self._known or is_cut):
            self.problems.append(f"is damaged ({self._complaint}); the parts that decode are used")
        elif holes > TOLERANCE:
            self.problems.append(
                f"has holes in its time stamps, {holes:.2f} s in all, which are left silent"
            )

    def _note_rest(self) -> None:
        """Note the bytes of a wav file behind its samples, unless these are chunks."""
        if more := unread(self._data, self._end):
            self.problems.append(
                f"holds {more} bytes behind its samples, as of a recorder that did not write its "
                "length; they are not read"
            )

    def _origin(self) -> float | None:
        """The time stamp of the recording's start, seconds; None if its first sample begins it."""
        assert self._container is not None  # for mypy
        start = self._container.start_time
        if start is None:
            return None
        seconds = float(start) / 1e6
        if self._is(FROM_ZERO) and seconds > LATEST_START:
            self.problems.append(f"has times from {seconds:.2f} s on, which count from 0 here")
        from_zero = self._is(FROM_ZERO) and -STEP_BACK < seconds <= LATEST_START
        return 0.0 if from_zero else seconds

    def _stated_seconds(self) -> float:
        """The end of the track by the file's header; 0 if it states none."""
        stream, container = self._stream, self._container
        assert container is not None  # for mypy
        if self._is(("mp3",)):
            return self._mp3_seconds or 0.0
        if self._is(("matroska",)) and len(container.streams) == 1 and container.duration:
            return float(container.duration) / 1e6
        if self._is(("caf",)) and stream.codec_context.name.startswith("pcm"):
            return stream.frames / self.sample_rate  # the duration is that of the bytes there
        if self._is(("caf",)) and stream.duration:  # whole packets, of which the last may be padded
            packet = stream.codec_context.frame_size / self.sample_rate
            return max(0.0, float(stream.duration * (stream.time_base or 0)) - packet)
        if stream.duration is None or not self._is(STATED):
            return 0.0
        return float((max(0, stream.start_time or 0) + stream.duration) * (stream.time_base or 0))

    def _about_tracks(self) -> list[str]:
        """A line about the tracks that are not read, if there are any."""
        assert self._container is not None  # for mypy
        streams = self._container.streams.audio
        if len(streams) == 1 or self._asked is not None:
            return []
        names = ", ".join(f"{i}: {described(each)}" for i, each in enumerate(streams[:8]))
        return [
            f"has {len(streams)} audio tracks ({names}); track {self._track} is read, --track N "
            "reads another"
        ]

    def _is(self, formats: tuple[str, ...]) -> bool:
        assert self._container is not None  # for mypy
        return self._container.format.name.split(",")[0] in formats

    def _undecodable(self) -> str:
        return f": none of {self._packets} packets can be decoded" if self._damaged else ""


def open_container(data: BinaryIO) -> "InputContainer":
    """An open file as FFmpeg's container.

    Raises:
        NotAudioError: if it is not one of CONTAINERS.
    """
    import av

    alone = {"protocol_whitelist": "", "format_whitelist": CONTAINERS}
    try:
        with quiet():
            return av.open(data, "r", options=alone, metadata_errors="replace")
    except MemoryError:
        raise
    except Exception as error:  # PyAV raises a dozen types, AttributeError among them
        log = getattr(error, "log", None)
        text = f"{getattr(error, 'strerror', error)}" + (f": {log[2].strip()}" if log else "")
        raise NotAudioError(printable(text)[:300]) from error


def quiet() -> Any:
    """A context in which FFmpeg's messages of this thread go to a list of (level, source, text)."""
    import av.logging

    if av.logging.get_level() is None:
        av.logging.set_level(av.logging.ERROR)  # or there are none
        av.logging.set_skip_repeated(False)  # which would say "repeated" of the next file
    return av.logging.Capture()


def described(stream: "AudioStream") -> str:
    """A track's codec, channels, language and title, for a message."""
    names = [str(stream.metadata[key]) for key in ("language", "title") if key in stream.metadata]
    words = [stream.codec_context.name, stream.codec_context.layout.name, *names]
    return shown(" ".join(words), 80)[1:-1]


def samples_of(frame: "AudioFrame") -> np.ndarray:
    """A frame's samples (n, channels) in float32, full scale 1."""
    dtype, channels = np.dtype(DTYPES[frame.format.name.rstrip("p")]), frame.layout.nb_channels
    buffers: Any = frame.planes
    planes = [np.frombuffer(plane, dtype) for plane in buffers]
    if frame.format.is_planar:
        samples = np.stack([plane[: frame.samples] for plane in planes], axis=1)
    else:
        samples = planes[0][: frame.samples * channels].reshape(-1, channels)
    if dtype.kind == "f":
        return samples.astype(np.float32, copy=False)
    middle, scale = (128.0, 128.0) if dtype.kind == "u" else (0.0, -float(np.iinfo(dtype).min))
    return ((samples - middle) / scale).astype(np.float32)


def unread(data: BinaryIO, end: int) -> int:
    """Count the bytes of a wav file behind its samples, unless all are chunks, as tags are."""
    size, at = data.seek(0, os.SEEK_END), end + end % 2
    while at + 8 <= size:
        data.seek(at)
        name, length = struct.unpack("<4sI", data.read(8))
        if name == b"RIFF" or not name.isascii() or at + 8 + length > size:
            return size - end
        at += 8 + length + length % 2
    return 0


def mp3_seconds(data: BinaryIO) -> float | None:
    """The length that the first frame of an MP3 file states, behind the ID3 tag; None without it.

    Encoders write the number of frames there, behind the mark Xing (ISO/IEC 11172-3 has no length).
    """
    data.seek(0)
    head = data.read(10)
    skipped = 0
    if head[:3] == b"ID3" and len(head) == 10:
        skipped = 10 + sum((byte & 0x7F) << 7 * i for i, byte in enumerate(reversed(head[6:])))
    data.seek(skipped)
    first = data.read(256)
    data.seek(0)
    mark = max(first.find(each) for each in XING)
    if mark < 4 or first[0] != 0xFF or len(first) < mark + 12 or not first[mark + 7] & 1:
        return None
    is_mpeg1, rate = first[1] >> 3 & 1, MP3_RATES[first[2] >> 2 & 3]
    rate //= 1 if is_mpeg1 else 2 if first[1] >> 4 & 1 else 4
    frames = int.from_bytes(first[mark + 8 : mark + 12], "big")
    return frames * (1152 if is_mpeg1 else 576) / rate if rate else None
