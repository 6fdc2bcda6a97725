"""Recognition of other toolkits' files, folders and keys."""

import gzip
import json
import os
import re
import shlex
import zlib
from collections.abc import Collection, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from asrkit.audio.files import SUFFIXES
from asrkit.errors import printable, shown

INDEX = "index.arrow"  # file of a folder of shards
HEAD = 1 << 16  # bytes of a file that are examined
MOST_NAMES = 10_000  # names of a folder that are examined
GZIP = b"\x1f\x8b"
ARROW = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")  # parquet, a file and a stream of Arrow
COLUMNS = {"path", "audio", "wav", "file", "file_name", "filename", "wav_filename", "sentence",
           "text", "transcript", "transcription", "client_id", "audio_filepath", "speaker",
           "duration", "id", "n_frames", "tgt_text"}  # fmt: skip
SEPARATORS = "\t,;|"
TEXTS = (".txt", ".lab", ".srt", ".vtt", ".textgrid")  # endings of texts beside recordings
TRANSCRIPTS = ".trans.txt"  # endings of LibriSpeech's
LISTS = (".jsonl", ".jsonl.gz", "manifest.json", ".csv", ".tsv")  # endings of lists of recordings

# Keys of other toolkits, without case and signs, by the key of a plain manifest.
NAMES = {
    "audio": "audiofilepath audiopath audiofile audiofilename wav wavpath wavfile wavfilename path "
    "file filename filepath",
    "id": "uttid utteranceid utt uid key",
    "text": "transcript transcription sentence txt reference ref",
    "speaker": "speakerid spk spkid speakername clientid",
    "start": "offset begin begintime starttime startsec startseconds onset",
    "duration": "dur length durationsec durationseconds",
    "sample_rate": "samplerate samplingrate sr",
    "num_channels": "numchannels channels nchannels",
}
KEYS = {key: name for name, keys in NAMES.items() for key in keys.split()}
ENDS = {"end", "endtime", "endsec", "endseconds", "stop"}


def plain(key: str) -> str:
    """Return a key without case and signs: "Sample-Rate" and "sample_rate" become equal."""
    return re.sub(r"[\W_]", "", key).lower()


def meant(key: str, names: Collection[str]) -> str | None:
    """Return the key of a manifest for another toolkit's key, or None."""
    bare = plain(key)
    if bare in ENDS:
        return "duration"
    return KEYS.get(bare) or next((name for name in names if plain(name) == bare), None)


def wrong_keys(values: Mapping[str, Any], names: Collection[str]) -> str | None:
    """Describe keys of a line that should be one of `names`, if the line lacks that name."""
    found = {}
    for key in values.keys() - set(names):
        name = meant(key, names) if values[key] is not None else None
        if name is not None and values.get(name) is None:
            found[key] = f"{name} (end minus start)" if plain(key) in ENDS else name
    if not found:
        return None
    pairs = sorted(found.items())
    return ", ".join(f"{shown(key)} is not a key here: write {name}" for key, name in pairs[:5])


def import_command(kind: str, path: Path) -> str:
    return f"asrkit data import {kind} {shlex.quote(printable(str(path)))} --output DIR"


def advice(path: Path) -> str | None:
    """Return what to do with a path that is not a manifest; None for one that may be one."""
    if kind := recognized(path):
        return f"use {import_command(kind, path)}"
    if path.is_dir():
        lists = [name for name in names_in(path) if name.endswith(LISTS)]
        if lists and not (path / INDEX).is_file():
            return f"name a list in this folder, such as {shown(path / lists[0])}"
        return None
    if path.is_file() and beginning(path)[257:262] == b"ustar":
        return "it is a tar archive: unpack it with tar xf and name the folder"
    lines = first_lines(path)
    if lines and not lines[0].lstrip().startswith("{"):
        begin = shown(lines[0], 40)
        return f"it begins with {begin}: write one JSON object a line with id, audio and text"
    return None


def recognized(path: Path) -> str | None:
    """Return the kind of `asrkit data import` that reads a path, by its content; None if unknown.

    A manifest and a folder of shards have no kind.
    """
    if path.is_dir():
        return None if (path / INDEX).is_file() else kind_of_folder(path)
    if not path.is_file():  # opening a pipe would wait for its writer
        return None
    if beginning(path).startswith(ARROW):
        return "huggingface"
    lines = first_lines(path)
    if path.name == "wav.scp":
        return "kaldi"
    if lines and lines[0].lstrip().startswith("{"):
        return kind_of_object(lines[0])
    is_table = path.suffix.lower() in (".csv", ".tsv") or separator(lines)
    return "table" if lines and is_table else None


def beginning(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked if it is gzipped."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
            if not head.startswith(GZIP):
                return b"" if path.suffix == ".gz" else head
            file.seek(0)
            return gzip.GzipFile(fileobj=file).read(HEAD)
    except (OSError, EOFError, zlib.error):
        return b""


def first_lines(path: Path) -> list[str]:
    """Return the first lines of a text file that are not empty; [] for other files."""
    head = beginning(path) if path.is_file() else b""
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    lines = [line for line in head.decode(encoding, "replace").splitlines() if line.strip()][:20]
    return lines if lines and "\0" not in lines[0] else []


def kind_of_object(line: str) -> str | None:
    """Return the kind of a file of JSON lines by its first object."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    if "audio_filepath" in values:
        return "nemo"
    is_cut = str(values.get("type", "")).endswith("Cut")
    if is_cut or ("sources" in values and "sampling_rate" in values) or "recording_id" in values:
        return "lhotse"
    has_audio = any(KEYS.get(plain(str(key))) == "audio" for key in values)
    other_keys = has_audio and "audio" not in values
    return "jsonl" if other_keys or isinstance(values.get("audio"), dict) else None


def separator(lines: list[str]) -> str | None:
    """Return the character between the columns of a table, by its first lines, or None."""
    for sign in SEPARATORS if lines else "":
        cells = [cell.strip('" \t').lower() for cell in lines[0].split(sign)]
        regular = len(lines) > 1 and len({line.count(sign) for line in lines}) == 1
        if len(cells) > 1 and (COLUMNS & set(cells) or (regular and sign in "\t|")):
            return sign
    return None


def names_in(folder: Path) -> list[str]:
    """Return the first MOST_NAMES names in a folder, sorted."""
    with os.scandir(folder) as entries:
        return sorted(each.name for each in islice(entries, MOST_NAMES))


def kind_of_folder(path: Path) -> str | None:
    """Return the kind of a folder, the likeliest one."""
    names = names_in(path)
    if "wav.scp" in names:
        return "kaldi"
    if any(name.startswith("cuts") or "recordings" in name
           for name in names if name.endswith((".jsonl", ".jsonl.gz"))):  # fmt: skip
        return "lhotse"
    walk = ((place, name) for place, _, names in os.walk(path) for name in names)
    inside = list(islice(walk, MOST_NAMES))
    if any(name.endswith((".arrow", ".parquet")) for _, name in inside):
        return "huggingface"
    if any(name.endswith(TRANSCRIPTS) for _, name in inside):
        return "librispeech"
    parts = [(place, *os.path.splitext(name)) for place, name in inside]
    sound = {(place, stem) for place, stem, ending in parts if ending.lower() in SUFFIXES}
    texts = {(place, stem) for place, stem, ending in parts if ending.lower() in TEXTS}
    has_list = any(name.endswith(LISTS) for name in names)
    return "folder" if sound & texts or (sound and not has_list) else None
