"""Files that FFmpeg reads; each sample is at the time at which a player plays it."""

import os
import re
from collections.abc import Iterator
from itertools import chain
from types import SimpleNamespace
from typing import Any, BinaryIO

import av
import av.logging
import numpy as np

from asrkit.audio.reader import PADDING, AudioFile, bytes_after, cut_off
from asrkit.audio.resampler import checked_rate
from asrkit.audio.samples import MAX_SECONDS, TOLERANCE, AudioError
from asrkit.errors import printable

# The formats that FFmpeg may read: containers of audio. Playlists name other files; devices,
# scripts and protocols are not files at all.
CONTAINERS = (
    "aac,ac3,ac4,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,dsf,dss,dts,dtshd,dv,eac3,flac,flv,gxf,"
    "iff,ircam,loas,matroska,webm,mov,mp4,m4a,3gp,3g2,mp2,mp3,mpc,mpc8,mpeg,mpegts,mxf,nistsphere,"
    "nut,ogg,oma,qcp,rm,shn,sox,tak,truehd,tta,voc,w64,wav,wtv,wv"
)
FROM_ZERO = ("matroska", "mov", "avi", "flv", "asf", "nut", "mxf")  # formats whose times begin at 0
# Formats whose headers state the length; other lengths are estimates, or count what is there.
STATED = ("flac", "mov", "mp3", "aiff", "au", "asf", "nistsphere")
SAMPLES_LAST = ("wav", "w64", "aiff", "iff", "au", "caf")  # formats that end with the samples
MAX_FAILURES = 64  # consecutive errors after which reading a container stops
LATEST_START = 60.0  # seconds; a recording with a later start was cut from a longer one
LONGEST_HOLE = 3600.0  # seconds; longer steps are a wrong time, or another clock
STEP_BACK = 1.0  # seconds; times that step back further begin another recording
ROUNDING = 0.005  # seconds, accuracy of time stamps
MAX_EMPTY = 8  # packets before the first samples of a codec, and before those of a joined file
ZEROS = 1 << 20  # samples × channels of silence in a block


class Container(AudioFile):
    """An audio track of a file that FFmpeg reads; silence replaces missing samples.

    FFmpeg receives an open file and cannot open files itself. It would take the name 12:30.m4a for
    a protocol, and read the files that a playlist names.

    Args:
        data: open file, which `close` closes.
        track: number of the audio track, from 0; None for the default one.
        sample_rate: Hz to which FFmpeg converts the track; None for its own.
    """

    def __init__(
        self, data: BinaryIO, name: str, track: int | None = None, sample_rate: int | None = None
    ) -> None:
        self.name, self._data, self._asked = name, data, track
        self._container: Any = None  # InputContainer
        try:
            frames = self._open()
            if (first := next(frames, None)) is None:
                raise AudioError(f"{name} has a header but no samples")
            rate = sample_rate or first.sample_rate
            super().__init__(name, rate, first.layout.nb_channels, None)
        except BaseException:
            self.close()
            raise
        self._frames: Iterator[av.AudioFrame] | None = chain([first], frames)

    def samples(self, first: int, count: int | None) -> Iterator[np.ndarray]:
        frames, self._frames = self._frames or self._open(), None
        convert, position = Converter(self.sample_rate, self.num_channels), 0
        end = MAX_SECONDS * self.sample_rate if count is None else first + count
        for frame in chain(frames, [None]):
            gap = self._silence_before(frame, position / self.sample_rate)
            silent = silence(round(gap * self.sample_rate), self.num_channels)
            for samples in chain(silent, convert(frame)):
                if len(part := samples[max(0, first - position) : max(0, end - position)]):
                    yield part
                position += len(samples)
            if position > end:  # a part up to the end reads the end, too
                break
        if position > MAX_SECONDS * self.sample_rate:
            raise AudioError(f"{self.name} is longer than {MAX_SECONDS // 3600} hours")
        self.problems += self._about_tracks()
        self.problems += self._missing(position / self.sample_rate, position <= end)

    def close(self) -> None:
        if self._container is not None:
            self._container.close()
        self._data.close()

    def _open(self) -> Iterator[av.AudioFrame]:
        """Open the container at its start; return the frames of the track."""
        if self._container is not None:
            self._container.close()
        self._packets = self._damaged = self._empty = self._end = 0
        self._complaint, self._is_after_damage = "", False
        self._is_cut = False  # whether the last packet lacks a part
        self._holes = 0.0
        self._container = open_container(self._data, self.name)
        self._origin = self._start_time()
        streams = self._container.streams.audio
        if not streams:
            kinds = " and ".join(sorted({each.type for each in self._container.streams}))
            raise AudioError(f"{self.name} has no audio track, only {kinds or 'a header'}")
        if self._asked is not None and not 0 <= self._asked < len(streams):
            raise AudioError(
                f"{self.name} has audio tracks 0 to {len(streams) - 1}, got track {self._asked}"
            )
        default = (i for i, each in enumerate(streams) if int(each.disposition) & 1)
        self._track = next(default, 0) if self._asked is None else self._asked
        self._stream: Any = streams[self._track]  # AudioStream
        codec = self._stream.codec_context
        if codec is None:
            raise AudioError(f"{self.name} has audio in a codec that FFmpeg does not know")
        codec.thread_count = 1  # so that errors belong to their packets
        if codec.name == "flac":  # FLAC frames have checksums
            codec.options = {"err_detect": "crccheck+explode"}
        return self._decoded()

    def _decoded(self) -> Iterator[av.AudioFrame]:
        """Decode the track; note packets that cannot be decoded, and damage between packets."""
        packets, failures = self._container.demux(self._stream), 0
        while failures < MAX_FAILURES:
            packet, frames = None, []
            try:
                with quiet() as messages:
                    if (packet := next(packets, None)) is None:
                        break
                    frames = packet.decode()
            except EOFError:
                break
            except Exception:  # PyAV raises a dozen types, AttributeError among them
                self._is_after_damage = True
                self._damaged += packet is not None
            for level, source, text in messages:
                if level <= av.logging.ERROR and source == self._container.format.name:
                    self._complaint = self._complaint or printable(text.strip())
            if packet is None:
                packets, failures = self._container.demux(self._stream), failures + 1
                continue
            failures = 0
            if packet.size:
                self._packets, self._is_cut = self._packets + 1, packet.is_corrupt
                self._empty += not any(each.samples for each in frames)
                self._end = max(self._end, (packet.pos or 0) + packet.size)
            for frame in frames:
                if frame.samples:
                    yield frame
                    self._is_after_damage = False
        if failures and not self._complaint:
            self._complaint = f"the container cannot be read beyond packet {self._packets}"

    def _start_time(self) -> float | None:
        """Return the time of the recording's start in seconds; None if its first sample is it."""
        if (start := self._container.start_time) is None:
            return None
        seconds = float(start) / 1e6
        return 0.0 if self._is(*FROM_ZERO) and -STEP_BACK < seconds <= LATEST_START else seconds

    def _silence_before(self, frame: av.AudioFrame | None, position: float) -> float:
        """Return the seconds of silence before a frame, after `position` seconds of audio, so that
        the frame is at the time of its playback."""
        if frame is None or frame.time is None or self._is("aac"):  # which has no times
            return 0.0
        origin = frame.time if self._origin is None else self._origin
        gap = frame.time - origin - position
        if not -STEP_BACK <= gap <= LONGEST_HOLE:
            origin, gap = origin + gap, 0.0
        elif position and gap <= (ROUNDING if self._is_after_damage else TOLERANCE):
            gap = 0.0
        self._origin, gap = origin, max(0.0, gap)
        self._holes += gap * (position > 0.0)  # seconds of silence between frames
        return gap

    def _missing(self, seconds: float, at_end: bool) -> Iterator[str]:
        """Yield a line for each part that is missing in `seconds` of the track, or at its end."""
        missing = self._stated_seconds() - seconds
        is_cut = at_end and (missing > TOLERANCE or (self._is_cut and not self._is_pcm()))
        if is_cut:
            yield cut_off(missing)
        more = self._data.seek(0, os.SEEK_END) - self._end
        if at_end and more > PADDING and self._is(*SAMPLES_LAST) and self._is_pcm():
            yield bytes_after(more)
        lost = self._empty if self._empty - self._damaged > MAX_EMPTY else self._damaged
        if lost > (self._is_after_damage and is_cut):
            yield f"is damaged: {lost} of {self._packets} packets cannot be decoded"
        elif self._complaint and not is_cut:
            yield f"is damaged ({self._complaint}); the parts that decode are used"
        if self._holes > TOLERANCE and not self._damaged:
            yield f"has gaps in its time stamps, {self._holes:.2f} s in all, replaced by silence"

    def _stated_seconds(self) -> float:
        """Return the end of the track by the file's header; 0 if it states none."""
        stream, container = self._stream, self._container
        if self._is("matroska") and len(container.streams) == 1 and container.duration:
            return float(container.duration) / 1e6
        if self._is("caf") and self._is_pcm():
            return float(stream.frames / stream.rate)  # the duration counts bytes that exist
        if stream.duration is None or not self._is(*STATED):
            return 0.0
        seconds, start = stream.duration * stream.time_base, max(0, stream.start_time or 0)
        if self._is("mp3"):  # an estimate by the bit rate is not a whole number of samples
            is_stated = start and (seconds * stream.rate).denominator == 1
            return float(seconds) if is_stated else 0.0
        return float(seconds + start * stream.time_base)

    def _about_tracks(self) -> Iterator[str]:
        """Yield a line about tracks that are not read, if any."""
        count = len(self._container.streams.audio)
        if count > 1 and self._asked is None:
            yield (
                f"has {count} audio tracks, from 0; track {self._track} is read, --track N reads "
                "another"
            )

    def _is_pcm(self) -> bool:
        return str(self._stream.codec_context.name).startswith("pcm")

    def _is(self, *formats: str) -> bool:
        return self._container.format.name.split(",")[0] in formats


class Converter:
    """Converts frames to one rate and number of channels; both may change in a broadcast."""

    def __init__(self, sample_rate: int, num_channels: int) -> None:
        self.sample_rate, self.num_channels = sample_rate, num_channels
        self._kind: tuple[int, str, str] | None = None
        self._resampler: av.AudioResampler | None = None

    def __call__(self, frame: av.AudioFrame | None) -> list[np.ndarray]:
        """Return the samples (n, channels) that a frame completes; None ends the stream."""
        kind, frames = None, []
        if frame:
            kind = checked_rate(frame.sample_rate), frame.layout.name, frame.format.name
        if kind != self._kind and self._resampler:
            frames += self._resampler.resample(None)
        if frame and kind != self._kind:
            self._kind = kind
            self._resampler = av.AudioResampler("flt", frame.layout, self.sample_rate)
        if frame and self._resampler:
            frames += self._resampler.resample(frame)
        return [self._mixed(each) for each in frames]

    def _mixed(self, frame: av.AudioFrame) -> np.ndarray:
        samples = frame.to_ndarray().reshape(frame.samples, -1)
        if samples.shape[1] != self.num_channels:
            samples = np.repeat(samples.mean(axis=1, keepdims=True), self.num_channels, axis=1)
        return samples


def silence(num_samples: int, num_channels: int) -> Iterator[np.ndarray]:
    """Yield zeros (n, channels) in blocks."""
    size = ZEROS // num_channels
    for left in range(num_samples, 0, -size):
        yield np.zeros((min(size, left), num_channels), np.float32)


def open_container(data: BinaryIO, name: str) -> Any:
    """Open a container with FFmpeg, by its content; damaged MP3 is recognised by its start."""

    def seek(offset: int, whence: int = os.SEEK_SET) -> int:
        try:
            return data.seek(offset, whence)
        except (OSError, ValueError):  # before the start; PyAV would print a traceback
            return -1

    hidden = SimpleNamespace(read=data.read, seek=seek, tell=data.tell)  # without the name
    alone = {"protocol_whitelist": "", "format_whitelist": CONTAINERS}
    data.seek(0)
    for kind in [None, "mp3"] if re.match(b"ID3|\xff[\xe0-\xff]", data.read(3)) else [None]:
        data.seek(0)
        try:
            with quiet():
                return av.open(hidden, "r", format=kind, options=alone, metadata_errors="replace")
        except Exception as error:  # PyAV raises a dozen types, AttributeError among them
            why = printable(str(getattr(error, "strerror", error)))
    raise AudioError(f"{name} is not audio that soundfile or FFmpeg reads ({why})")


def quiet() -> Any:
    """Return a context that collects FFmpeg's messages of this thread: (level, source, text)."""
    if av.logging.get_level() is None:
        av.logging.set_level(av.logging.ERROR)  # the default level reports none
        av.logging.set_skip_repeated(False)  # otherwise FFmpeg says "repeated" for the next file
    return av.logging.Capture()
