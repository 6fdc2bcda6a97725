"""Folders of recordings with a file of text beside each."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from asrkit.audio.file import SUFFIXES
from asrkit.data.corpora.entry import MOST_ENTRIES, CorpusError, Entry, Omitted, Source
from asrkit.data.corpora.text_file import read_text
from asrkit.errors import shown

logger = logging.getLogger(__name__)

NO_TEXT, NO_AUDIO = "audio without a text beside it", "text without audio beside it"
SAME_NAME = "audio with the name of another file"


def read_folder(source: Source, omitted: Omitted) -> Iterator[Entry]:
    """Yield the recordings of a folder and its subfolders that have a text beside them.

    The speaker is the name of the first subfolder, below the folder that all recordings share.
    """
    sound: dict[str, Path] = {}  # by path without ending
    texts: dict[str, Path] = {}
    others: list[Path] = []
    for path in files_of(source.path):
        name, ending = os.path.splitext(path)
        if ending.lower() in SUFFIXES:
            if sound.setdefault(name, path) is not path:
                omitted.add(SAME_NAME, path.relative_to(source.path))
        elif ending.lower() == ".txt":
            texts[name] = path
        else:
            others.append(path)
    if others:
        named = ", ".join(map(shown, others[:3])) + (" …" if len(others) > 3 else "")
        logger.warning("%d other files are not read: %s", len(others), named)
    for name in texts.keys() - sound.keys():
        omitted.add(NO_AUDIO, texts[name].relative_to(source.path))
    shared = os.path.commonpath([path.parent for path in sound.values()]) if sound else ""
    for name, path in sound.items():
        below = path.relative_to(source.path)
        if name not in texts:
            omitted.add(NO_TEXT, below)
            continue
        text = read_text(texts[name], omitted)
        if text is not None:
            yield Entry(id_of(below), path, text, speaker_of(path.relative_to(shared)))


def id_of(path: Path) -> str:
    """Return the id of a recording: the parts of its path, without the ending."""
    return "-".join(path.with_suffix("").parts)


def speaker_of(path: Path) -> str | None:
    """Return the first folder of a relative path, or None."""
    return path.parts[0] if len(path.parts) > 1 else None


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders in the order of their names.

    Hidden files and folders are skipped. Links to folders are not followed.

    Raises:
        CorpusError: for more than MOST_ENTRIES files.
    """
    count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(names):
            path = Path(place, name)
            if name.startswith(".") or not path.is_file():
                continue
            count += 1
            if count > MOST_ENTRIES:
                raise CorpusError(
                    f"{shown(folder)} has more than {MOST_ENTRIES} files: import parts of it"
                )
            yield path
