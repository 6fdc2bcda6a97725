"""Containers that FFmpeg reads; each sample is at the time at which a player plays it."""

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain, pairwise
from types import SimpleNamespace
from typing import Any, BinaryIO

from asrkit.audio.frames import (
    STEP_BACK,
    Converter,
    Frame,
    Times,
    samples_of,
    silence,
)
from asrkit.audio.samples import IN_MEMORY, MAX_SECONDS, TOLERANCE, AudioError, Blocks
from asrkit.errors import printable, shown

# The formats that FFmpeg may read: containers of audio. Playlists name other files; devices,
# scripts and protocols are not files at all.
CONTAINERS = (
    "aac,ac3,ac4,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,dsf,dss,dts,dtshd,dv,eac3,flac,flv,gxf,"
    "iff,ircam,loas,matroska,webm,mov,mp4,m4a,3gp,3g2,mp2,mp3,mpc,mpc8,mpeg,mpegts,mxf,nistsphere,"
    "nut,ogg,oma,qcp,rm,shn,sox,tak,truehd,tta,voc,w64,wav,wtv,wv"
)
FROM_ZERO = ("matroska", "mov", "avi", "flv", "asf", "nut", "mxf")  # formats whose times begin at 0
CLOCKS = ("mpegts", "mpeg")  # formats whose times are those of a clock
STATED = ("flac", "mov", "mp3", "aiff", "au", "asf")  # formats with a length in the header
SAMPLES_LAST = ("wav", "w64", "aiff", "iff", "au")  # formats that end with the samples
MAX_FAILURES = 64  # consecutive errors after which reading a container stops
LATEST_START = 60.0  # seconds; a recording with a later start was cut from a longer one
CLOCK_JUMP, LONGEST_HOLE = 10.0, 3600.0  # seconds; longer steps are a wrong time, or another clock
MAX_EMPTY = 8  # packets before the first samples of a codec, and before those of a joined file
MAX_RIFF = 1 << 31  # bytes; a larger size was written without the length
PADDING = 8  # bytes after the samples that only fill the last chunk
FIRST_PAGE = re.compile(rb"OggS\x00\x02.{22}(.{8})", re.DOTALL)  # of an Ogg stream, with its codec
RAW = {".raw", ".gsm", ".vox"}  # endings of files without a header


class Container:
    """An audio track of a file that FFmpeg reads; silence replaces missing samples.

    FFmpeg receives an open file and cannot open files itself. It would take the name 12:30.m4a for
    a protocol, and read the files that a playlist names.

    Args:
        data: open file, which `close` closes.
        track: number of the audio track, from 0; None for the default one.
    """

    num_samples = None  # only reading to the end counts them

    def __init__(self, data: BinaryIO, name: str, track: int | None = None) -> None:
        self._data, self._name, self._asked = data, name, track
        self._container: Any = None  # InputContainer
        try:
            frames = self._open()
            first = next(frames, None)
            if first is None:
                of = f": none of {self._packets} packets can be decoded" if self._damaged else ""
                raise AudioError(f"{name} has a header but no samples{of}")
        except BaseException:
            self.close()
            raise
        self.sample_rate, self.num_channels = first.sample_rate, first.samples.shape[1]
        self._frames: Iterator[Frame] | None = chain([first], frames)

    def samples(self, first: int, count: int | None, problems: list[str]) -> Blocks:
        """Yield `count` samples (n, channels) from `first` on; append a line for each problem."""
        end, position = None if count is None else first + count, 0
        with closing(self._placed(problems)) as placed:
            for block in placed:
                stop = None if end is None else max(0, end - position)
                if len(part := block[max(0, first - position) : stop]):
                    yield part
                position += len(block)
                if end is not None and position > end:  # a part up to the end reads the end, too
                    return

    def close(self) -> None:
        if self._container is not None:
            self._container.close()
        self._data.close()

    def _open(self) -> Iterator[Frame]:
        """Open the container at its start; return the frames of the track."""
        if self._container is not None:
            self._container.close()
        self._packets = self._damaged = self._empty = self._end = 0
        self._lost, self._complaint = 0.0, ""
        self._container, messages = open_container(self._data, self._name)
        self._is_joined = any("concatenated" in text for _, _, text in messages)
        streams = self._container.streams.audio
        if not streams:
            kinds = " and ".join(sorted({each.type for each in self._container.streams}))
            raise AudioError(f"{self._name} has no audio track, only {kinds or 'a header'}")
        if self._asked is not None and not 0 <= self._asked < len(streams):
            raise AudioError(
                f"{self._name} has audio tracks 0 to {len(streams) - 1}, got track {self._asked}"
            )
        default = (i for i, each in enumerate(streams) if int(each.disposition) & 1)
        self._track = next(default, 0) if self._asked is None else self._asked
        self._stream: Any = streams[self._track]  # AudioStream
        codec = self._stream.codec_context
        if codec is None:
            raise AudioError(
                f"{self._name} has an audio track in a codec that FFmpeg does not know"
            )
        codec.thread_count = 1  # so that errors belong to their packets
        if codec.name == "flac":  # FLAC frames have checksums
            codec.options = {"err_detect": "crccheck+explode"}
        return self._decoded()

    def _decoded(self) -> Iterator[Frame]:
        """Decode the track; note packets that cannot be decoded, and damage between packets."""
        import av.logging

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
            for level, source, text in messages:
                if level <= av.logging.ERROR and source == self._container.format.name:
                    self._complaint = self._complaint or printable(text.strip())
            self._empty += packet.size > 0 and not any(each.samples for each in frames)
            for frame in frames:
                if frame.samples:
                    yield Frame(frame.time, frame.sample_rate, samples_of(frame), damaged)
                    self._ends_damaged = damaged = False
        if failures and not self._complaint:
            self._complaint = f"the container cannot be read beyond packet {self._packets}"

    def _placed(self, problems: list[str]) -> Blocks:
        """Yield the samples (n, channels) of all frames at one rate, and silence in gaps."""
        frames, self._frames = self._frames or self._open(), None
        problems += self._about_tracks()
        longest = CLOCK_JUMP if self._is(*CLOCKS) else LONGEST_HOLE
        times = Times(self._origin(), longest, has_times=not self._is("aac"))
        convert, position, at_end = Converter(self.sample_rate, self.num_channels), 0, False
        try:
            for frame, following in pairwise(chain(frames, [None])):
                assert frame is not None
                seconds = times.silence_before(frame, following, position / self.sample_rate)
                gap = silence(round(seconds * self.sample_rate), self.num_channels)
                for samples in chain(gap, convert(frame)):
                    position += len(samples)
                    if position > MAX_SECONDS * self.sample_rate:
                        raise AudioError(f"{self._name} is longer than {MAX_SECONDS // 3600} hours")
                    yield samples
            rest = convert.rest()
            position, at_end = position + len(rest), True
            yield rest
        finally:  # also if the caller stops early
            problems += self._missing(times, position / self.sample_rate, at_end)

    def _missing(self, times: "Times", seconds: float, at_end: bool) -> Iterator[str]:
        """Yield a line for each part that is missing in `seconds` of the track, or at its end."""
        missing = self._stated_seconds() - seconds if at_end else 0.0
        if is_cut := missing > TOLERANCE:
            yield cut_off(missing)
        size = self._data.seek(0, os.SEEK_END)
        if at_end and self._is("avi") and (lost := self._riff_bytes() - size) > PADDING:
            yield f"is cut off: {lost} of its bytes are missing; the audio there is used"
        more = size - self._end_of_chunks(size)
        if at_end and self._is(*SAMPLES_LAST, "caf" * self._is_pcm) and more > PADDING:
            yield bytes_after(more)
        if self._empty - self._damaged > MAX_EMPTY:
            yield f"has {self._empty - self._damaged} packets that FFmpeg decodes to no samples"
        if at_end and self._is("ogg") and self._has_other_codecs():
            yield "holds other streams after its first, which FFmpeg does not read"
        if times.jumps:
            yield f"has time stamps that jump by {times.jumps:.0f} s, which is not taken as silence"
        if self._damaged > (self._ends_damaged and is_cut):
            yield (
                f"is damaged: {self._damaged} of {self._packets} packets ({self._lost:.2f} of "
                f"{seconds:.2f} s) cannot be decoded and are replaced by silence"
            )
        elif self._complaint and not is_cut:
            yield f"is damaged ({self._complaint}); the parts that decode are used"
        if times.holes > TOLERANCE and not self._damaged:
            yield f"has gaps in its time stamps, {times.holes:.2f} s in all, replaced by silence"

    def _origin(self) -> float | None:
        """Return the time of the recording's start in seconds; None if its first sample is it."""
        if (start := self._container.start_time) is None:
            return None
        seconds = float(start) / 1e6
        return 0.0 if self._is(*FROM_ZERO) and -STEP_BACK < seconds <= LATEST_START else seconds

    def _stated_seconds(self) -> float:
        """Return the end of the track by the file's header; 0 if it states none."""
        stream, container = self._stream, self._container
        if self._is("matroska") and len(container.streams) == 1 and container.duration:
            return float(container.duration) / 1e6
        if self._is("caf") and self._is_pcm:
            return float(stream.frames / self.sample_rate)  # the duration counts bytes that exist
        if stream.duration is None or not self._is(*STATED):
            return 0.0
        start, end = max(0, stream.start_time or 0), float(stream.duration * stream.time_base)
        if self._is("mp3"):  # a length is stated where the encoder's delay is
            return end if start and not self._is_joined else 0.0
        return end + float(start * stream.time_base)

    def _riff_bytes(self) -> int:
        """Return the size of an AVI file that its first bytes state; 0 if they do not."""
        self._data.seek(4)
        stated = 8 + int.from_bytes(self._data.read(4), "little")
        return stated if stated <= MAX_RIFF else 0

    def _end_of_chunks(self, size: int) -> int:
        """Return the place behind the samples and, in wav, behind the chunks that follow them."""
        end = self._end
        while self._is("wav"):
            self._data.seek(start := end + end % 2)
            name = self._data.read(4).strip()
            length = int.from_bytes(self._data.read(4), "little")
            if name in (b"RIFF", b"data") or not name.isalnum() or start + 8 + length > size:
                break
            end = start + 8 + length
        return end

    def _has_other_codecs(self) -> bool:
        """Return whether codecs follow in an Ogg file that its first streams do not have."""
        codecs, count = ogg_streams(self._data), len(self._container.streams)
        return not set(codecs[count:]) <= set(codecs[:count])

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
    def _is_pcm(self) -> bool:
        return str(self._stream.codec_context.name).startswith("pcm")

    def _is(self, *formats: str) -> bool:
        return self._container.format.name.split(",")[0] in formats


def ogg_streams(data: BinaryIO) -> list[bytes]:
    """Return the codecs of an Ogg file's streams by their first pages, also of joined files."""
    codecs, block = list[bytes](), b""
    data.seek(0)
    while more := data.read(1 << 20):
        block = block[-35:] + more  # without a whole page of the block before
        codecs += FIRST_PAGE.findall(block)
    return codecs


def cut_off(seconds: float) -> str:
    return f"is cut off: it ends {seconds:.2f} s before its header says; the audio there is used"


def bytes_after(count: int) -> str:
    return (
        f"holds {count} bytes after its samples, perhaps of another file or of a recorder that did "
        "not write its length; they are not read"
    )


def described(stream: Any) -> str:
    """Return a track's codec, channels, language and title for a message."""
    names = [str(stream.metadata[key]) for key in ("language", "title") if key in stream.metadata]
    codec = stream.codec_context  # None: FFmpeg does not know it
    words = [codec.name, codec.layout.name] if codec else ["unknown codec"]
    return shown(" ".join([*words, *names]), 80)[1:-1]


def open_container(data: BinaryIO, name: str) -> tuple[Any, list[Any]]:
    """Open a container with FFmpeg; also return FFmpeg's messages: (level, source, text).

    The content decides. A file that FFmpeg does not recognise, such as a damaged one, is MP3 if it
    begins so, or else what its name says. The same bytes in memory have no name.
    """
    import av
    import av.logging

    def seek(offset: int, whence: int = os.SEEK_SET) -> int:
        try:
            return data.seek(offset, whence)
        except (OSError, ValueError):  # before the start; PyAV would print a traceback
            return -1

    hidden = SimpleNamespace(read=data.read, seek=seek, tell=data.tell)  # without the name
    ways: list[tuple[Any, str | None]] = [(hidden, None)]
    if is_mp3 := begins_as_mp3(data):
        ways.append((hidden, "mp3"))
    if isinstance(path := getattr(data, "name", None), str):
        ways.append((SimpleNamespace(**vars(hidden), name=path), None))
    alone = {"protocol_whitelist": "", "format_whitelist": CONTAINERS}
    for file, kind in ways:
        data.seek(0)
        try:
            with quiet() as messages, reporting(is_mp3):
                opened = av.open(file, "r", format=kind, options=alone, metadata_errors="replace")
            return opened, messages
        except Exception as error:  # PyAV raises a dozen types, AttributeError among them
            if lacks_memory(error):
                raise
            log = getattr(error, "log", None)
            reason = f"{getattr(error, 'strerror', error)}" + (f": {log[2].strip()}" if log else "")
    hint = "; raw 16-bit samples: np.frombuffer(data, np.int16)" if name == IN_MEMORY else ""
    if isinstance(path, str) and os.path.splitext(path)[1].lower() in RAW:
        hint = "; samples without a header: sox a.gsm a.wav, sox -r 16000 -t s16 a.raw a.wav"
    raise AudioError(
        f"{name} is not audio that soundfile or FFmpeg reads ({printable(reason)[:300]}){hint}"
    )


def begins_as_mp3(data: BinaryIO) -> bool:
    """Return whether a file begins with an ID3 tag or with the sync word of MPEG audio."""
    data.seek(0)
    head = data.read(3)
    return head == b"ID3" or (head[:1] == b"\xff" and head[1:2] >= b"\xe0")


def lacks_memory(error: Exception) -> bool:
    """Return whether Python lacks memory; FFmpeg's own lack is a size in a damaged file."""
    return isinstance(error, MemoryError) and not hasattr(error, "errno")


@contextmanager
def reporting(warnings: bool) -> Iterator[None]:
    """Report FFmpeg's warnings, of which one says that MP3 files are joined."""
    import av.logging

    level = av.logging.get_level()
    av.logging.set_level(av.logging.WARNING if warnings else level)
    try:
        yield
    finally:
        av.logging.set_level(level)


def quiet() -> Any:
    """Return a context that collects FFmpeg's messages of this thread: (level, source, text)."""
    import av.logging

    if av.logging.get_level() is None:
        av.logging.set_level(av.logging.ERROR)  # the default level reports none
        av.logging.set_skip_repeated(False)  # otherwise FFmpeg says "repeated" for the next file
    return av.logging.Capture()
