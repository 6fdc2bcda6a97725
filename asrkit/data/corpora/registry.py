"""The readers of corpora by kind, for `asrkit data import`."""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from asrkit.data.corpora.folder import read_folder
from asrkit.data.corpora.huggingface import read_dataset
from asrkit.data.corpora.layouts import read_kaldi, read_librispeech
from asrkit.data.corpora.lhotse import read_lhotse
from asrkit.data.corpora.source import CorpusError, Omitted, Source
from asrkit.data.corpora.table import objects_in, read_json_lines, read_table
from asrkit.data.inputs import files_of
from asrkit.data.splits import Row
from asrkit.errors import no_file, shown

AUTO = "auto"
MOST_NAMES = 10_000  # files of a folder that are examined

READERS: dict[str, Callable[[Source, Omitted], Iterator[Row]]] = {  # the keys of `KINDS`
    "folder": read_folder,
    "table": read_table,
    "manifest": lambda source, omitted: read_json_lines(source._replace(split=None), omitted),
    "jsonl": read_json_lines,
    "nemo": read_json_lines,
    "kaldi": read_kaldi,
    "librispeech": read_librispeech,
    "huggingface": read_dataset,
    "lhotse": read_lhotse,
}
NAMED = ("table", "manifest", "jsonl", "nemo", "huggingface")
OPTIONS = {"columns": NAMED, "audio_root": (*NAMED, "kaldi", "lhotse")}  # kinds that these change
FILES = {  # kinds by paths in a folder, or by a file's name
    "kaldi": re.compile(r"wav\.scp"),
    "lhotse": re.compile(r"(cuts|[^/]*recordings)[^/]*\.jsonl(\.gz)?"),
    "huggingface": re.compile(r".*\.parquet"),
    "librispeech": re.compile(r".*\.trans\.txt"),
}


def kind_of(path: Path, wanted: str) -> str:
    """Return the kind of a corpus: the wanted one, or for AUTO the one that the content shows."""
    if not path.exists():
        raise CorpusError(f"{shown(path)} {no_file(path)}")
    if wanted != AUTO:
        return wanted
    inside = islice(files_of(path), MOST_NAMES) if path.is_dir() else ()
    names = [each.relative_to(path).as_posix() for each in inside] or [path.name]
    for kind, name in FILES.items():
        if kind == "lhotse" and path.is_file():
            continue  # a manifest may be called recordings.jsonl: its content shows the kind
        if any(map(name.fullmatch, names)):
            return kind
    if path.is_dir():
        return "folder"
    if path.suffix.lower() in (".csv", ".tsv"):
        return "table"
    _, first = next(objects_in(path, Omitted()), ("", {}))
    if not first:
        raise CorpusError(f"{shown(path)} is not recognised: the kinds are {', '.join(READERS)}")
    if "audio_filepath" in first:
        return "nemo"
    if first.keys() & {"sources", "recording_id", "recording", "tracks"}:
        return "lhotse"
    return "manifest" if first.keys() >= {"id", "audio"} else "jsonl"
