"""Opening containers of audio with FFmpeg, which gets no other file to open."""

import os
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO

from asrkit.audio.file import NotAudioError
from asrkit.errors import printable

if TYPE_CHECKING:
    from av.container import InputContainer

# The formats that FFmpeg may read: containers of audio. Playlists name other files; devices,
# scripts and protocols are not files at all.
CONTAINERS = (
    "aac,ac3,ac4,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,dsf,dss,dts,dtshd,dv,eac3,flac,flv,gxf,"
    "iff,ircam,loas,matroska,webm,mov,mp4,m4a,3gp,3g2,mp2,mp3,mpc,mpc8,mpeg,mpegts,mxf,nistsphere,"
    "nut,ogg,oma,qcp,rm,shn,sox,tak,truehd,tta,voc,w64,wav,wtv,wv"
)


def open_container(data: BinaryIO) -> "InputContainer":
    """Open a container with FFmpeg; raise NotAudioError if it is not one of CONTAINERS.

    The content decides. A file that FFmpeg does not recognise, such as a damaged one, is MP3 if it
    begins so, or else what its name says. The same bytes in memory have no name.
    """
    if not data.seekable():
        return opened_as(data)

    def seek(offset: int, whence: int = os.SEEK_SET) -> int:
        try:
            return data.seek(offset, whence)
        except (OSError, ValueError):  # before the start; PyAV would print a traceback
            return -1

    hidden = SimpleNamespace(read=data.read, seek=seek, tell=data.tell)  # without the name
    ways: list[tuple[Any, str | None]] = [(hidden, None)]
    if begins_as_mp3(data):
        ways.append((hidden, "mp3"))
    if hasattr(data, "name"):
        ways.append((SimpleNamespace(**vars(hidden), name=data.name), None))
    for source, format_name in ways[:-1]:
        with suppress(NotAudioError):
            return opened_as(source, format_name)
        data.seek(0)
    return opened_as(*ways[-1])


def opened_as(data: Any, format_name: str | None = None) -> "InputContainer":
    """Open a container of this format of FFmpeg's; None to recognise it."""
    import av

    alone = {"protocol_whitelist": "", "format_whitelist": CONTAINERS}
    try:
        with quiet():
            return av.open(data, "r", format=format_name, options=alone, metadata_errors="replace")
    except Exception as error:  # PyAV raises a dozen types, AttributeError among them
        if lacks_memory(error):
            raise
        log = getattr(error, "log", None)
        text = f"{getattr(error, 'strerror', error)}" + (f": {log[2].strip()}" if log else "")
        raise NotAudioError(printable(text)[:300]) from error


def begins_as_mp3(data: BinaryIO) -> bool:
    """Return whether a file begins with an ID3 tag or with the sync word of MPEG audio."""
    head = data.read(3)
    data.seek(0)
    return head == b"ID3" or (head[:1] == b"\xff" and head[1:2] >= b"\xe0")


def lacks_memory(error: Exception) -> bool:
    """Return whether Python lacks memory.

    FFmpeg also reports a lack for a size that a damaged file states, which is damage.
    """
    return isinstance(error, MemoryError) and not hasattr(error, "errno")


def quiet() -> Any:
    """Return a context that collects FFmpeg's messages of this thread: (level, source, text)."""
    import av.logging

    if av.logging.get_level() is None:
        av.logging.set_level(av.logging.ERROR)  # the default level reports none
        av.logging.set_skip_repeated(False)  # otherwise FFmpeg says "repeated" for the next file
    return av.logging.Capture()
