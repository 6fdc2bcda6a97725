"""Corpora in the layouts of LibriSpeech and Kaldi."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from asrkit.audio.files import SUFFIXES
from asrkit.data.corpora.entry import Entry, Omitted, Source, found_audio, lines_of, seconds_of
from asrkit.data.corpora.folder import files_of
from asrkit.data.foreign import TRANSCRIPTS
from asrkit.data.splits import split_of
from asrkit.errors import shown

COMMAND = (
    "command in place of a file; commands are never run: write the path of the audio file itself, "
    "also of FLAC or SPHERE, in wav.scp, or convert the audio"
)
ARCHIVE = "audio inside an archive of Kaldi: write it as files with wav-copy"
ARCHIVED = re.compile(r":\d+(\[[^\[\]]*\])?$")
OVERSHOOT = 0.5  # seconds; Kaldi's extract-segments cuts such ends
LONGEST_END = 100  # characters of a path that can name a place in an archive


def read_librispeech(source: Source, omitted: Omitted) -> Iterator[Entry]:
    """Yield the lines of all transcripts; each file of a line's id is beside the transcript.

    The parts are the corpus's own, if there are folders such as train-clean-100 and dev-clean.
    """
    found = [each for each in files_of(source.path) if each.name.endswith(TRANSCRIPTS)]
    parts = {path: split_of(path.relative_to(source.path).parent) for path in found}
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


Part = tuple[str, float, float | None]  # recording, start, duration in seconds, if known


def read_kaldi(source: Source, omitted: Omitted) -> Iterator[Entry]:
    """Yield the utterances of a data folder in the order of its segments, or of wav.scp."""
    folder = source.path if source.path.is_dir() else source.path.parent  # of wav.scp
    root = source.audio_root or folder
    audio = {
        name: path
        for name, value in table_of(folder / "wav.scp", omitted).items()
        if (path := file_of(name, value, root, omitted)) is not None
    }
    texts = table_of(folder / "text", omitted)
    speakers = optional(folder / "utt2spk", omitted)
    segments = optional(folder / "segments", omitted)
    parts = parts_of(segments, omitted) if segments else {name: (name, 0.0, None) for name in audio}
    for name in texts:
        if name not in parts and (segments or name not in audio):
            omitted.add("text without audio", name)
    for name, (recording, start, duration) in parts.items():
        if recording not in audio:
            omitted.add("segment without a file in wav.scp", f"{name}: {recording}")
        elif name not in texts:
            omitted.add("audio without a line in text", name)
        else:
            speaker = speakers.get(name)  # Kaldi's recipes write the id for an unknown speaker
            known = None if speaker == name else speaker
            yield Entry(
                name, audio[recording], texts[name], known, start, duration, overshoot=OVERSHOOT
            )


def table_of(path: Path, omitted: Omitted) -> dict[str, str]:
    """Return the values of a file with a key and a value on each line."""
    found: dict[str, str] = {}
    for _, line in lines_of(path):
        key, *rest = line.split(maxsplit=1)
        if key in found:
            omitted.add(f"line of {path.name} whose key occurs twice", key)
        else:
            found[key] = rest[0].strip() if rest else ""
    return found


def optional(path: Path, omitted: Omitted) -> dict[str, str]:
    return table_of(path, omitted) if path.is_file() else {}


def file_of(name: str, value: str, root: Path, omitted: Omitted) -> Path | None:
    """Return the file of a line of wav.scp; None, with a reason, for commands and archives."""
    example = f"{name} {shown(value)[1:-1]}"
    if value.endswith("|") or value.startswith("|") or value == "-":
        omitted.add(COMMAND, example)
    elif not value:
        omitted.add("line of wav.scp without a file", name)
    elif ARCHIVED.search(value[-LONGEST_END:]):
        omitted.add(ARCHIVE, example)
    else:
        return found_audio(value, root, omitted)
    return None


def parts_of(segments: Mapping[str, str], omitted: Omitted) -> dict[str, Part]:
    """Return the parts of the lines of segments: recording, start, end (-1: the file's end)."""
    found: dict[str, Part] = {}
    for name, value in segments.items():
        cells = value.split()
        start = seconds_of(cells[1]) if len(cells) == 3 else None
        end = seconds_of(cells[2]) if len(cells) == 3 else None
        if start is None or (end is None and cells[2] != "-1"):
            omitted.add("segment that is not a recording, a start and an end", f"{name} {value}")
        else:
            found[name] = cells[0], start, None if end is None else end - start
    return found
