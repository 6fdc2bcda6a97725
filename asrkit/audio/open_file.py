"""Opening audio files of any format; every failure is an AudioError."""

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import soundfile

from asrkit.audio.container import begins_as_mp3
from asrkit.audio.ffmpeg import FFmpegFile
from asrkit.audio.file import (
    MAX_SECONDS,
    AudioError,
    AudioFile,
    NoSamplesError,
    NotAudioError,
    Source,
    bytes_of,
    name_of,
)
from asrkit.audio.joined import JoinedFile, layout_of
from asrkit.audio.sndfile import SndFile, is_exact, open_sndfile
from asrkit.errors import no_file


@contextmanager
def opened(source: Source, track: int | None = None, ending: str = "") -> Iterator[AudioFile]:
    """Open a file; leaving the block closes it.

    libsndfile reads the formats that it reads exactly, FFmpeg all others. A path always names a
    local file, never a URL or a device.

    Args:
        track: number of the audio track in a container, from 0; None for the default one.
        ending: extension of the file's own name, such as ".gsm", if its path has another one.
    """
    try:
        file = open_audio(source, track, ending)
    except OSError as error:
        why = error.strerror or error
        raise AudioError(f"{name_of(source)} cannot be read: {why}") from error
    try:
        yield file
    finally:
        file.close()


def open_audio(source: Source, track: int | None = None, ending: str = "") -> AudioFile:
    """Open a file; the caller closes it.

    Raises:
        AudioError: for a file that cannot be read.
        OSError: for a file that cannot be opened.
    """
    name = name_of(source)
    if isinstance(source, (str, Path)):
        check_path(Path(source), name)
    with bytes_of(source) as data:
        is_mp3 = begins_as_mp3(data)
    if is_mp3:  # libmpg123 guesses lengths and writes to standard error
        with suppress(AudioError):  # FFmpeg decodes nothing of free-format files
            return FFmpegFile(bytes_of(source), name, track)
    layout = layout_of(source)
    if len(layout.starts) > 1 and not track:
        return JoinedFile(source, layout.starts, partial(open_audio, track=track))
    known = [layout.damage] if layout.damage else []

    def ffmpeg() -> FFmpegFile:
        return FFmpegFile(bytes_of(source), name, track, known)

    file, problem = None, "its header states no length"
    try:
        file = open_sndfile(source, ending)
    except soundfile.LibsndfileError as error:
        problem = error.error_string
    is_named = file is not None and file.format == "RAW"  # recognised by its name alone
    doubts = is_named or track or layout.damage or layout.has_tracks or not layout.is_counted
    if file is not None and is_exact(file) and not doubts:
        cut = [] if layout.is_complete else ["is cut off: its last page is missing"]
        return SndFile(file, source, ffmpeg, cut, ending)
    try:
        other = ffmpeg()
        if is_named and not other.is_signed:
            other.close()
            raise NotAudioError("the name states another format")
    except AudioError as error:
        is_other = is_named and isinstance(error, NoSamplesError)  # the name is wrong
        fits = file is not None and 0 < file.frames <= MAX_SECONDS * file.samplerate
        if file is not None and fits and not is_other and not track:
            return SndFile(file, source, ffmpeg, known, ending)
        if file is not None:
            file.close()
        if not isinstance(error, NotAudioError):
            raise
        raw = isinstance(source, io.BytesIO)
        hint = "; raw 16-bit samples: np.frombuffer(data, dtype=np.int16)" if raw else ""
        raise AudioError(
            f"{name} is not audio that soundfile or FFmpeg reads ({problem} {error}){hint}"
        ) from error
    if file is not None:
        file.close()
    return other


def check_path(path: Path, name: str) -> None:
    """Raise AudioError unless the path names a file that is not empty."""
    if str(path) == "-" and not path.exists():
        raise AudioError("standard input is not read here: asrkit stream - reads it")
    if path.is_fifo():
        raise AudioError(f"{name} is a pipe, which is not read here: asrkit stream - < {name}")
    if not path.is_file():
        raise AudioError(f"{name} {no_file(path)}")
    if path.stat().st_size == 0:
        raise AudioError(f"{name} is empty (0 bytes)")
