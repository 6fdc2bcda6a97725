"""Corpora in the layouts of LJSpeech and LibriSpeech."""

import os
from collections.abc import Iterator
from pathlib import Path

from asrkit.audio.file import SUFFIXES
from asrkit.data.corpora.entry import Entry, Omitted, Source, found_audio, lines_of
from asrkit.data.corpora.folder import files_of
from asrkit.data.foreign import TRANSCRIPTS
from asrkit.data.splits import NAMES


def read_ljspeech(source: Source, omitted: Omitted) -> Iterator[Entry]:
    """Yield the lines of metadata.csv: id, text, and perhaps the normalised text, which is used."""
    for number, line in lines_of(source.path / "metadata.csv"):
        name, *texts = line.split("|")
        if not texts or not name:
            omitted.add("line that is not ID|TEXT", f"metadata.csv:{number}")
            continue
        ending = "" if Path(name).suffix.lower() in SUFFIXES else ".wav"
        audio = found_audio(f"{name}{ending}", source.path / "wavs", omitted)
        if audio is not None:
            yield Entry(Path(name).name.removesuffix(".wav"), audio, texts[-1] or texts[0])


def read_librispeech(source: Source, omitted: Omitted) -> Iterator[Entry]:
    """Yield the lines of all transcripts; each file of a line's id is beside the transcript.

    The parts are the corpus's own, if there are folders such as train-clean-100 and dev-clean.
    """
    found = [each for each in files_of(source.path) if each.name.endswith(TRANSCRIPTS)]
    parts = {path: part_of(path.relative_to(source.path)) for path in found}
    has_dev = {"train", "dev"} <= set(parts.values())
    for path in found:
        with os.scandir(path.parent) as entries:
            sound = {
                Path(each.name).stem: Path(each.path)
                for each in entries
                if Path(each.name).suffix.lower() in SUFFIXES
            }
        for _, line in lines_of(path):
            name, *text = line.split(maxsplit=1)
            if name not in sound:
                omitted.add("text without audio", name)
                continue
            speaker = name.split("-")[0]  # SPEAKER-CHAPTER-NUMBER
            yield Entry(
                name, sound[name], "".join(text), speaker, split=parts[path] if has_dev else None
            )


def part_of(path: Path) -> str | None:
    """Return train, dev or test if a folder of a path has such a name, such as train-clean-5."""
    first = (part.split("-")[0] for part in path.parts[:-1])
    return next((part for part in first if part in NAMES), None)
