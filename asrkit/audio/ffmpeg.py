"""Audio files that FFmpeg reads; each sample is at the time at which a player plays it."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from asrkit.audio.chunks import unread
from asrkit.audio.container import lacks_memory, open_container, quiet
from asrkit.audio.file import (
    MAX_SECONDS,
    TOLERANCE,
    AudioError,
    AudioFile,
    NoSamplesError,
    regrouped,
)
from asrkit.audio.placement import (
    STEP_BACK,
    Converter,
    Frame,
    Placement,
    part_of,
    silence,
    with_later_times,
)
from asrkit.errors import printable, shown

if TYPE_CHECKING:
    from av import AudioFrame, AudioStream

# Formats that are recognised by frames that fit, and not by a signature: noise may fit, too.
UNSIGNED = ("aac", "ac3", "ac4", "dts", "dtshd", "eac3", "loas", "mp3", "mpeg", "mpegts", "truehd")
FROM_ZERO = ("matroska", "mov", "avi", "flv", "asf", "nut", "mxf")  # formats whose times begin at 0
CLOCKS = ("mpegts", "mpeg")  # formats whose times are those of a clock
COUNTED = ("aac",)  # formats without times: FFmpeg counts packets
STATED = ("flac", "mov", "aiff", "caf", "au", "asf")  # formats with a length in the header
XING = (b"Xing", b"Info")  # marks in the first frame of an MP3 with a stated length
MP3_RATES = (44100, 48000, 32000, 0)  # Hz, for MPEG-1; MPEG-2 has a half of them, and 2.5 a quarter
MP3_PADDING = 0.25  # seconds of silence that encoders add at most; players skip it
LATEST_START = 60.0  # seconds; a recording with a later start was cut from a longer one
DTYPES = {"u8": "u1", "s16": "i2", "s32": "i4", "s64": "i8", "flt": "f4", "dbl": "f8"}  # of samples
MAX_FAILURES = 64  # consecutive errors after which reading a container stops


class FFmpegFile(AudioFile):
    """An audio track of a file that FFmpeg reads.

    FFmpeg receives an open file and cannot open files itself. It would take the name 12:30.m4a for
    a protocol, and read the files that a playlist names. Missing samples are replaced by silence:
    before the track's start, in gaps of the time stamps, for damaged packets.

    Args:
        data: open file, which `close` closes. If it is not seekable, it can be read once.
        track: number of the audio track, from 0; None for the default one.
        problems: lines about the file that are already known.
    """

    def __init__(
        self, data: BinaryIO, name: str, track: int | None = None, problems: Sequence[str] = ()
    ) -> None:
        self._data, self._asked, self._name, self._known = data, track, name, problems
        self._mp3_seconds = mp3_seconds(data) if data.seekable() else None
        self._container: Any = None  # InputContainer
        try:
            frames = self._open()
            first = next(frames, None)
            if first is None:
                of = f": none of {self._packets} packets can be decoded" if self._damaged else ""
                raise self._without(f"{name} has a header but no samples{of}")
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
        """Open the container at its start; return the frames of the track."""
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
            raise self._without(f"{self._name} has no audio track, only {kinds or 'a header'}")
        if self._asked is not None and not 0 <= self._asked < len(streams):
            raise AudioError(
                f"{self._name} has audio tracks 0 to {len(streams) - 1}, got track {self._asked}"
            )
        default = (i for i, each in enumerate(streams) if int(each.disposition) & 1)
        self._track = next(default, 0) if self._asked is None else self._asked
        self._stream: AudioStream = streams[self._track]
        if self._stream.codec_context is None:
            raise self._without(
                f"{self._name} has an audio track in a codec that FFmpeg does not know"
            )
        self._stream.codec_context.thread_count = 1  # so that errors belong to their packets
        if self._stream.codec_context.name == "flac":  # FLAC frames have checksums
            self._stream.codec_context.options = {"err_detect": "crccheck+explode"}
        return self._decoded()

    def _decoded(self) -> Iterator[Frame]:
        """Decode the track; note packets that cannot be decoded, and damage between packets."""
        packets, failures = self._container.demux(self._stream), 0
        self._ends_damaged = damaged = False
        while failures < MAX_FAILURES:
            packet, frames = None, []
            try:
                with quiet() as messages:
                    if (packet := next(packets, None)) is None:
                        break
                    frames = packet.decode()
            except EOFError:
                break
            except Exception as error:  # PyAV raises a dozen types, AttributeError among them
                if lacks_memory(error):
                    raise
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
                if source == self._container.format.name:  # a message of the demuxer
                    self._note(printable(text.strip()))
            for frame in frames:
                if frame.samples:
                    yield Frame(frame.time, frame.sample_rate, samples_of(frame), damaged)
                    self._ends_damaged = damaged = False
        if failures:
            self._note(f"the container cannot be read beyond packet {self._packets}")

    def _note(self, message: str) -> None:
        """Keep a message of FFmpeg about the container."""
        if "prematurely" in message:
            self._ends_early = True
        else:
            self._complaint = self._complaint or message

    def _placed(self, frames: Iterator[Frame]) -> Generator[np.ndarray, None, None]:
        """Yield the samples (n, channels) of frames at the file's rate, and silence in gaps."""
        place = Placement(self._origin(), self._is(CLOCKS), not self._is(COUNTED))
        convert, position = Converter(self.sample_rate, self.num_channels), 0
        at_end = False
        try:
            for frame, later in with_later_times(frames):
                seconds = place.silence_before(frame, later, position / self.sample_rate)
                gap = silence(round(seconds * self.sample_rate), self.num_channels)
                for samples in chain(gap, convert(frame)):
                    position += len(samples)
                    if position > MAX_SECONDS * self.sample_rate:
                        raise AudioError(f"{self.name} is longer than {MAX_SECONDS // 3600} hours")
                    yield samples
            rest = convert.rest()
            position, at_end = position + len(rest), True
            yield rest
        finally:  # also if the caller stops early
            if place.doubted:
                self.problems.append(
                    f"ends with a frame whose time is {place.doubted:.0f} s after all others; "
                    "it is read without the silence before it"
                )
            self._report(place.holes, position / self.sample_rate, at_end)

    def _report(self, holes: float, seconds: float, at_end: bool) -> None:
        """Note what is missing in `seconds` of the track, and at its end."""
        missing = self._stated_seconds() - seconds if at_end else 0.0
        is_cut = missing > (MP3_PADDING if self._is(("mp3",)) else TOLERANCE)
        if is_cut:
            self.cut_off(missing)
        elif at_end and self._ends_early:
            self.problems.append("is cut off within a packet; the audio before it is used")
        if at_end and self._data.seekable():
            after_samples = self._end if self._is(("wav",)) else None
            if more := unread(self._data, after_samples):
                self.goes_on(more)
        if self._damaged > (self._ends_damaged and is_cut):
            self.problems.append(
                f"is damaged: {self._damaged} of {self._packets} packets ({self._lost:.2f} of "
                f"{seconds:.2f} s) cannot be decoded and are replaced by silence"
            )
        elif self._complaint and not (self._known or is_cut):
            self.problems.append(f"is damaged ({self._complaint}); the parts that decode are used")
        elif holes > TOLERANCE:
            self.problems.append(
                f"has gaps in its time stamps, {holes:.2f} s in all, which are replaced by silence"
            )

    def _origin(self) -> float | None:
        """Return the time of the recording's start in seconds; None if its first sample is it."""
        start = self._container.start_time
        if start is None:
            return None
        seconds = float(start) / 1e6
        if self._is(FROM_ZERO) and seconds > LATEST_START:
            self.problems.append(f"has times from {seconds:.2f} s on, which count from 0 here")
        from_zero = self._is(FROM_ZERO) and -STEP_BACK < seconds <= LATEST_START
        return 0.0 if from_zero else seconds

    def _stated_seconds(self) -> float:
        """Return the end of the track stated by the file's header; 0 if none is."""
        stream, container = self._stream, self._container
        if self._is(("mp3",)):
            return self._mp3_seconds or 0.0
        if self._is(("matroska",)) and len(container.streams) == 1 and container.duration:
            return float(container.duration) / 1e6
        if self._is(("caf",)) and stream.codec_context.name.startswith("pcm"):
            return stream.frames / self.sample_rate  # the duration only counts bytes that exist
        if self._is(("caf",)) and stream.duration:  # whole packets; the last may be padded
            packet = stream.codec_context.frame_size / self.sample_rate
            return max(0.0, float(stream.duration * (stream.time_base or 0)) - packet)
        if stream.duration is None or not self._is(STATED):
            return 0.0
        return float((max(0, stream.start_time or 0) + stream.duration) * (stream.time_base or 0))

    def _about_tracks(self) -> list[str]:
        """Return a line about tracks that are not read, if any."""
        streams = self._container.streams.audio
        if len(streams) == 1 or self._asked is not None:
            return []
        names = ", ".join(f"{i}: {described(each)}" for i, each in enumerate(streams[:8]))
        return [
            f"has {len(streams)} audio tracks ({names}); track {self._track} is read, --track N "
            "reads another"
        ]

    @property
    def is_signed(self) -> bool:
        """Whether the file has the signature of its format."""
        return not self._is(UNSIGNED)

    def _without(self, problem: str) -> AudioError:
        """Return the error about a file without audio."""
        return NoSamplesError(problem) if self.is_signed else AudioError(problem)

    def _is(self, formats: tuple[str, ...]) -> bool:
        return self._container.format.name.split(",")[0] in formats


def described(stream: "AudioStream") -> str:
    """Return a track's codec, channels, language and title for a message."""
    names = [str(stream.metadata[key]) for key in ("language", "title") if key in stream.metadata]
    codec = stream.codec_context  # None: FFmpeg does not know it
    words = [codec.name, codec.layout.name] if codec else ["unknown codec"]
    return shown(" ".join([*words, *names]), 80)[1:-1]


def samples_of(frame: "AudioFrame") -> np.ndarray:
    """Return a frame's samples (n, channels) in float32, full scale 1."""
    dtype, channels = np.dtype(DTYPES[frame.format.name.rstrip("p")]), frame.layout.nb_channels
    buffers: Any = frame.planes  # of many channels more than there are, whose memory is not theirs
    planes = [np.frombuffer(plane, dtype) for plane in buffers[:channels]]
    if frame.format.is_planar:
        samples = np.stack([plane[: frame.samples] for plane in planes], axis=1)
    else:
        samples = planes[0][: frame.samples * channels].reshape(-1, channels)
    if dtype.kind == "f":
        return samples.astype(np.float32, copy=False)
    middle, scale = (128.0, 128.0) if dtype.kind == "u" else (0.0, -float(np.iinfo(dtype).min))
    return ((samples - middle) / scale).astype(np.float32)


def mp3_seconds(data: BinaryIO) -> float | None:
    """Return the length stated by the first frame of an MP3, after the ID3 tag; None without it.

    Encoders write the number of frames there, after the mark Xing (ISO/IEC 11172-3 has no length).
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
    is_mpeg1, rate = mp3_rate(first)
    frames = int.from_bytes(first[mark + 8 : mark + 12], "big")
    return frames * (1152 if is_mpeg1 else 576) / rate if rate else None


def mp3_rate(header: bytes) -> tuple[bool, int]:
    """Return whether the header of an MPEG audio frame is of MPEG-1, and its rate in Hz, or 0."""
    is_mpeg1, rate = bool(header[1] >> 3 & 1), MP3_RATES[header[2] >> 2 & 3]
    return is_mpeg1, rate // (1 if is_mpeg1 else 2 if header[1] >> 4 & 1 else 4)
