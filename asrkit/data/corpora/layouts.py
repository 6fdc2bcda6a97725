"""Corpora in the layouts of LibriSpeech and Kaldi."""

import os
from collections.abc import Iterator
from pathlib import Path

from asrkit.audio.files import SUFFIXES
from asrkit.data.corpora.source import Omitted, Source, lines_of
from asrkit.data.inputs import files_of
from asrkit.data.splits import Row, split_of


def read_librispeech(source: Source, omitted: Omitted) -> Iterator[Row]:
    """Yield the lines of all transcripts; each file of a line's id is beside the transcript.

    The parts are the corpus's own, if there are folders such as train-clean-100 and dev-clean.
    """
    found = [each for each in files_of(source.path) if each.name.endswith(".trans.txt")]
    parts = {path: split_of(path.relative_to(source.path).parent) for path in found}
    has_dev = {"train", "dev"} <= set(parts.values())
    for path in found:
        sound = {e.stem: e for e in path.parent.iterdir() if e.suffix.lower() in SUFFIXES}
        for _, line in lines_of(path):
            name, *text = line.split(maxsplit=1)
            if name not in sound:
                omitted.add("text without audio", name)
                continue
            speaker = name.split("-")[0]  # SPEAKER-CHAPTER-NUMBER
            yield {"id": name, "audio": str(sound[name]), "text": "".join(text),
                   "speaker": speaker, "split": parts[path] if has_dev else None}  # fmt: skip


def read_kaldi(source: Source, omitted: Omitted) -> Iterator[Row]:
    """Yield the utterances of a data folder in the order of its segments, or of wav.scp."""
    folder = source.path if source.path.is_dir() else source.path.parent  # of wav.scp
    audio, texts = (table_of(folder / name, omitted) for name in ("wav.scp", "text"))
    speakers, segments = (
        table_of(folder / name, omitted) if (folder / name).is_file() else {}
        for name in ("utt2spk", "segments")
    )
    parts = segments or {name: f"{name} 0 -1" for name in audio}
    for name in texts.keys() - parts.keys():
        omitted.add("text without audio", name)
    for name, value in parts.items():
        recording, *times = value.split()
        if len(times) != 2:
            omitted.add("segment that is not a recording, a start and an end", f"{name} {value}")
        elif recording not in audio:
            omitted.add("segment without a file in wav.scp", f"{name}: {recording}")
        elif name not in texts:
            omitted.add("audio without a line in text", name)
        else:
            speaker = speakers.get(name)  # Kaldi's recipes write the id for an unknown speaker
            yield {"id": name, "audio": os.path.join(source.audio_root or folder, audio[recording]),
                   "text": texts[name], "speaker": None if speaker == name else speaker,
                   "start": times[0], "end": None if times[1] == "-1" else times[1]}  # fmt: skip


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
