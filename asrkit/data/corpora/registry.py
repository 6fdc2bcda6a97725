"""The readers of corpora by kind, for `asrkit data import`."""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from asrkit.data.corpora.folder import read_folder
from asrkit.data.corpora.huggingface import read_dataset
from asrkit.data.corpora.json_lines import objects_in, read_json_lines, read_own
from asrkit.data.corpora.layouts import read_kaldi, read_librispeech
from asrkit.data.corpora.lhotse import read_lhotse
from asrkit.data.corpora.source import CorpusError, Omitted, Source
from asrkit.data.corpora.table import read_table
from asrkit.data.inputs import files_of
from asrkit.data.splits import Row
from asrkit.errors import no_file, shown

AUTO = "auto"
NAMED = ("columns", "audio_root")
MOST_NAMES = 10_000  # files of a folder that are examined


class Kind(NamedTuple):
    """A kind of corpus."""

    read: Callable[[Source, Omitted], Iterator[Row]]  # reader of the utterances
    # Options of the command that have an effect on this kind, beside those of all.
    options: tuple[str, ...] = ()


READERS = {  # the keys of `KINDS`
    "folder": Kind(read_folder),
    "table": Kind(read_table, NAMED),
    "manifest": Kind(read_own, NAMED),
    "jsonl": Kind(read_json_lines, NAMED),
    "nemo": Kind(read_json_lines, NAMED),
    "kaldi": Kind(read_kaldi, ("audio_root",)),
    "librispeech": Kind(read_librispeech),
    "huggingface": Kind(read_dataset, NAMED),
    "lhotse": Kind(read_lhotse, ("audio_root",)),
}
FILES = {  # kinds by names of files, in a folder or alone
    "kaldi": re.compile(r"wav\.scp"),
    "lhotse": re.compile(r"cuts.*\.jsonl(\.gz)?|.*recordings.*\.jsonl(\.gz)?"),
    "huggingface": re.compile(r".*\.(parquet|arrow)"),
    "librispeech": re.compile(r".*\.trans\.txt"),
}


def kind_of(path: Path, wanted: str) -> str:
    """Return the kind of a corpus: the wanted one, or for AUTO the one that the content shows."""
    if not path.exists():
        raise CorpusError(f"{shown(path)} {no_file(path)}")
    if wanted != AUTO:
        return wanted
    files = [*islice(files_of(path), MOST_NAMES)] if path.is_dir() else [path]
    for kind, name in FILES.items():
        if any(name.fullmatch(each.name) for each in files):
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
