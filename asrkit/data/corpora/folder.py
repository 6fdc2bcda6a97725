"""Folders of recordings with a file of text, subtitles or labels beside each."""

import os
from collections.abc import Iterator
from pathlib import Path

from asrkit.audio.files import SUFFIXES
from asrkit.data.corpora.cues import read_cues
from asrkit.data.corpora.source import CorpusError, Omitted, Source
from asrkit.data.inputs import files_of, name_unread
from asrkit.data.splits import Row

TEXTS = (".txt", ".lab", ".srt", ".vtt", ".textgrid")  # endings of texts beside recordings


def read_folder(source: Source, omitted: Omitted) -> Iterator[Row]:
    """Yield the recordings of a folder and its subfolders that have a text beside them.

    The speaker is the name of the first subfolder, below the folder that all recordings share.
    """
    found: tuple[dict[str, Path], dict[str, Path]] = ({}, {})  # audio and texts by path, no ending
    others = []
    for path in files_of(source.path):
        name, ending = os.path.splitext(path)
        if ending.lower() not in (*SUFFIXES, *TEXTS):
            others.append(path)
        elif found[ending.lower() in TEXTS].setdefault(name, path) is not path:
            omitted.add("file with the name of another", path.relative_to(source.path))
    name_unread(others)
    sound, texts = found
    for name in texts.keys() - sound.keys():
        omitted.add("text without audio beside it", texts[name].relative_to(source.path))
    shared = os.path.commonpath([path.parent for path in sound.values()] or [source.path])
    for name, path in sound.items():
        below = path.relative_to(source.path)
        if name not in texts:
            omitted.add("audio without a text beside it", below)
            continue
        try:
            cues = read_cues(texts[name])
        except (CorpusError, OSError) as error:
            omitted.add("text that cannot be read", error)
            continue
        if not cues:
            omitted.add("empty text", texts[name])
        speaker = path.relative_to(shared).parts[0] if path.parent != Path(shared) else None
        for number, cue in enumerate(cues, start=1):
            cue_id = "" if cue.end is None else f"-{number:04d}"
            yield {"id": "-".join(below.with_suffix("").parts) + cue_id, "audio": str(path),
                   "text": cue.text, "speaker": cue.speaker or speaker, "start": cue.start,
                   "end": cue.end}  # fmt: skip
