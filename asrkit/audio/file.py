"""Opening audio files of any format; every failure is an AudioError."""

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import soundfile

from asrkit.errors import UserError, shown
from asrkit.extras import pip_install

if TYPE_CHECKING:
    from av.container import InputContainer

MIN_RATE, MAX_RATE = 1000, 768000  # Hz
MAX_CHANNELS = 64
MAX_SECONDS = 100 * 3600  # of one file; a header with more was written without the length

# The formats that FFmpeg may read: containers that hold their audio. Playlists name other files,
# and devices, scripts and protocols are no files at all.
CONTAINERS = (
    "aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,dsf,dts,eac3,flac,flv,loas,matroska,webm,mov,"
    "mp4,m4a,3gp,3g2,mp2,mp3,mpc,mpc8,mpeg,mpegts,ogg,oma,rm,sox,tak,truehd,tta,voc,w64,wav,wv"
)

Source = str | Path | io.BytesIO


class AudioError(UserError):
    """Audio that cannot be used; the message names it, the problem, and what would be right."""


@contextmanager
def opened(source: Source) -> Iterator[soundfile.SoundFile]:
    """The file, open for reading.

    soundfile reads wav, flac, mp3, ogg and opus; PyAV, if installed, reads other formats. A path is
    always that of a local file, never a URL or a device.

    Raises:
        AudioError: for a file that cannot be read, also while it is open.
    """
    name = name_of(source)
    try:
        file = _opened(source, name)
    except OSError as error:
        raise AudioError(f"{name} cannot be read: {error.strerror or error}") from error
    except soundfile.LibsndfileError as error:
        raise AudioError(f"{name} is not audio ({error.error_string})") from error
    with file:
        check_header(file, name)
        try:
            yield file
        except soundfile.LibsndfileError as error:
            raise AudioError(f"{name} is damaged: {error.error_string}") from error


def name_of(source: Source) -> str:
    """A file's name in a message."""
    return shown(Path(source), 300) if isinstance(source, (str, Path)) else "audio in memory"


def check_header(file: soundfile.SoundFile, name: str) -> None:
    """Raises AudioError for a rate, a length or a number of channels out of range."""
    if not MIN_RATE <= file.samplerate <= MAX_RATE or not 1 <= file.channels <= MAX_CHANNELS:
        raise AudioError(
            f"{name} has {file.channels} channels at {file.samplerate} Hz, not 1 to {MAX_CHANNELS} "
            f"at {MIN_RATE} to {MAX_RATE} Hz"
        )
    if file.frames > MAX_SECONDS * file.samplerate:
        raise AudioError(f"{name} has no length in its header: convert it to wav first")
    if file.frames <= 0:
        raise AudioError(f"{name} has a header but no samples")


def is_chained(path: str | Path) -> bool:
    """Whether several Ogg streams follow one another in a file, as in recordings of internet radio.

    Each page's header has its length, and a flag on the first page of a stream. Multiplexed
    streams, as of sound and video, all begin with the first pages.
    """
    begun = False  # past the first pages of the streams that begin the file
    with Path(path).open("rb") as file:
        while (page := file.read(27))[:4] == b"OggS" and len(page) == 27:
            if not page[5] & 2:
                begun = True
            elif begun:
                return True
            file.seek(sum(file.read(page[26])), os.SEEK_CUR)
    return False


def _opened(source: Source, name: str) -> soundfile.SoundFile:
    """The open file, its header not checked; AudioError, LibsndfileError or OSError if it fails."""
    if not isinstance(source, (str, Path)):
        return soundfile.SoundFile(source)
    path = Path(source).absolute()  # or libsndfile takes "-" for standard input
    if not path.is_file():
        raise AudioError(f"{name} is no file" if path.exists() else f"{name} does not exist")
    if path.stat().st_size == 0:
        raise AudioError(f"{name} is empty (0 bytes)")
    try:  # bytes, for soundfile cannot encode every name that a file may have
        return soundfile.SoundFile(os.fsencode(path) if os.name == "posix" else path)
    except soundfile.LibsndfileError as error:
        return decoded_by_av(path, name, error.error_string)
    except TypeError as error:  # soundfile takes .raw for headerless samples
        raise AudioError(
            f"{name} is headerless audio: give it a header, or stream it as -"
        ) from error


def decoded_by_av(path: Path, name: str, problem: str) -> soundfile.SoundFile:
    """A file that only FFmpeg reads (m4a, webm, …), decoded to a temporary file and opened.

    FFmpeg is given an open file and may open nothing itself: it would take the name 12:30.m4a for a
    protocol, and read the files that a playlist names.

    Args:
        path: of the file.
        name: of the file, in messages.
        problem: soundfile's error for this file.

    Raises:
        AudioError: if FFmpeg cannot read it as audio, or PyAV is not installed.
        OSError: if it cannot be opened.
    """
    try:
        import av
    except ImportError as error:
        raise AudioError(
            f"{name} is not audio that soundfile reads ({problem}); "
            f"for m4a, webm and others: {pip_install('av')}"
        ) from error
    alone = {"protocol_whitelist": "", "format_whitelist": CONTAINERS}
    storage = tempfile.TemporaryFile()  # noqa: SIM115 - closed by who closes the SoundFile
    with path.open("rb") as data:
        try:
            with av.open(data, "r", options=alone, metadata_errors="replace") as container:
                return _decoded(container, storage, name)
        except Exception as error:  # PyAV raises a dozen types, AttributeError among them
            storage.close()
            if isinstance(error, AudioError):
                raise
            raise AudioError(
                f"{name} is not audio that soundfile or FFmpeg reads ({problem})"
            ) from error


def _decoded(container: "InputContainer", storage: BinaryIO, name: str) -> soundfile.SoundFile:
    """The first audio stream of a container, in one or two channels, written to `storage`."""
    import av

    stream = container.streams.audio[0]
    channels = min(2, stream.channels)
    layout = "mono" if channels == 1 else "stereo"
    resampler = av.AudioResampler(format="flt", layout=layout, rate=stream.rate)
    file = soundfile.SoundFile(storage, "w+", stream.rate, channels, format="WAV", subtype="FLOAT")
    try:
        for frame in chain(container.decode(stream), [None]):
            for part in filter(None, resampler.resample(frame)):
                file.write(part.to_ndarray().reshape(-1, channels))
            if file.frames > MAX_SECONDS * stream.rate:
                raise AudioError(f"{name} is longer than {MAX_SECONDS // 3600} hours")
    except BaseException:
        file.close()  # before its storage is
        raise
    file.seek(0)
    return file
