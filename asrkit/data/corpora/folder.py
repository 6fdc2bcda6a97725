"""Folders of recordings with a file of text, subtitles or labels beside each."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from asrkit.audio.files import SUFFIXES
from asrkit.data.corpora.cues import read_cues
from asrkit.data.corpora.entry import CorpusError, Entry, Omitted, Source
from asrkit.data.foreign import TEXTS
from asrkit.errors import reason, shown

logger = logging.getLogger(__name__)

NO_TEXT, NO_AUDIO = "audio without a text beside it", "text without audio beside it"
SAME_NAME = "audio with the name of another file"
SECOND_TEXT = "second text beside an audio file"
UNREADABLE = "text that cannot be read"
NOT_SPEAKERS = {"audio", "clips", "data", "recordings", "wav", "wavs"}  # names of folders


def read_folder(source: Source, omitted: Omitted) -> Iterator[Entry]:
    """Yield the recordings of a folder and its subfolders that have a text beside them.

    The speaker is the name of the first subfolder, below the folder that all recordings share. If
    all are in one subfolder, its name is the speaker.
    """
    sound: dict[str, Path] = {}  # by path without ending
    texts: dict[str, Path] = {}
    others: list[Path] = []
    for path in files_of(source.path):
        name, ending = os.path.splitext(path)
        if ending.lower() in SUFFIXES:
            if sound.setdefault(name, path) is not path:
                omitted.add(SAME_NAME, path.relative_to(source.path))
        elif ending.lower() in TEXTS:
            if texts.setdefault(name, path) is not path:
                omitted.add(SECOND_TEXT, path.relative_to(source.path))
        else:
            others.append(path)
    if others:
        named = ", ".join(map(shown, others[:3])) + (" …" if len(others) > 3 else "")
        logger.warning("%d other files are not read: %s", len(others), named)
    for name in texts.keys() - sound.keys():
        omitted.add(NO_AUDIO, texts[name].relative_to(source.path))
    places = [path.parent for path in sound.values()] or [source.path]
    shared = Path(os.path.commonpath(places))
    is_named = shared != source.path and shared.name.lower() not in NOT_SPEAKERS
    for name, path in sound.items():
        if name in texts:
            below = path.relative_to(source.path)
            *first, _ = path.relative_to(shared).parts
            speaker = first[0] if first else shared.name if is_named else None
            yield from entries_of(path, texts[name], below, speaker, omitted)
        else:
            omitted.add(NO_TEXT, path.relative_to(source.path))


def entries_of(
    audio: Path, text: Path, below: Path, speaker: str | None, omitted: Omitted
) -> Iterator[Entry]:
    """Yield an entry for each cue of a text, or one for a text without times."""
    try:
        cues = read_cues(text)
    except CorpusError as error:
        omitted.add(UNREADABLE, error)
        return
    except OSError as error:
        omitted.add(UNREADABLE, f"{text}: {error.strerror or reason(error)}")
        return
    if not cues:
        omitted.add("empty text", text)
    for number, cue in enumerate(cues, start=1):
        duration = None if cue.end is None else cue.end - cue.start
        name = id_of(below) if cue.end is None else f"{id_of(below)}-{number:04d}"
        yield Entry(name, audio, cue.text, cue.speaker or speaker, cue.start, duration)


def id_of(path: Path) -> str:
    """Return the id of a recording: the parts of its path, without the ending."""
    return "-".join(path.with_suffix("").parts)


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders in the order of their names.

    Hidden files and folders are skipped. Links to folders are not followed; a warning names them.
    """
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in folders:
            if (path := Path(place, name)).is_symlink():
                logger.warning("%s is a link to a folder and is not read", shown(path))
        for name in sorted(names):
            path = Path(place, name)
            if name.startswith(".") or not path.is_file():
                continue
            yield path
