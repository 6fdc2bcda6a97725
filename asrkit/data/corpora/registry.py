"""The readers of corpora by kind, for `asrkit data import`."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from asrkit.data.corpora.entry import CorpusError, Entry, Omitted, Source
from asrkit.data.corpora.folder import read_folder
from asrkit.data.corpora.huggingface import files_in, read_audiofolder, read_dataset
from asrkit.data.corpora.json_lines import (
    objects_in,
    read_json_lines,
    read_lhotse,
    read_own,
    recordings_at,
)
from asrkit.data.corpora.layouts import read_kaldi, read_librispeech, read_ljspeech
from asrkit.data.corpora.table import is_table, read_common_voice, read_table
from asrkit.data.corpora.tars import read_webdataset
from asrkit.data.foreign import import_command, kinds_of_folder, metadata_in, recognized
from asrkit.data.manifest import is_lhotse
from asrkit.errors import path_advice, shown

AUTO = "auto"
# A name on the hub, or its address; a Path has one slash after the scheme.
HUB = re.compile(
    r"(?:https?:/huggingface\.co/datasets/|hf:/(?:datasets/)?)?(\w[\w.-]*)/(\w[\w.-]*)", re.ASCII
)
NAMED = ("columns", "audio_root")


class Kind(NamedTuple):
    """A kind of corpus."""

    read: Callable[[Source, Omitted], Iterator[Entry]]  # reader of the entries
    # Function whose result is true for a path that can be such a corpus.
    fits: Callable[[Path], object]
    # Options of the command that have an effect on this kind, beside those of all.
    options: tuple[str, ...] = ()


def like(kind: str) -> Callable[[Path], bool]:
    """Return a function that returns whether a path can be of this kind by its content."""

    def fits(path: Path) -> bool:
        found = kinds_of_folder(path) if path.is_dir() else [recognized(path)]
        return any(each is not None and each.kind == kind for each in found)

    return fits


def is_plain_manifest(path: Path) -> bool:
    """Return whether a path is a file that begins like a manifest of asrkit."""
    return path.is_file() and recognized(path) is None and not is_lhotse(path)


READERS = {  # the keys of `KINDS`
    "folder": Kind(read_folder, Path.is_dir),
    "table": Kind(read_table, is_table, NAMED),
    "commonvoice": Kind(read_common_voice, like("commonvoice")),
    "manifest": Kind(read_own, is_plain_manifest),
    "nemo": Kind(read_json_lines, like("nemo"), NAMED),
    "wenet": Kind(read_json_lines, like("wenet"), NAMED),
    "jsonl": Kind(
        read_json_lines, lambda path: is_plain_manifest(path) or like("jsonl")(path), NAMED
    ),
    "kaldi": Kind(read_kaldi, like("kaldi"), ("audio_root",)),
    "ljspeech": Kind(read_ljspeech, like("ljspeech")),
    "librispeech": Kind(read_librispeech, like("librispeech")),
    "huggingface": Kind(read_dataset, files_in, NAMED),
    "audiofolder": Kind(read_audiofolder, metadata_in, NAMED),
    "webdataset": Kind(read_webdataset, like("webdataset")),
    "lhotse": Kind(read_lhotse, recordings_at, ("audio_root",)),
}


def instead_of(path: Path) -> str:
    """Return what to do about a path that does not exist, which may be a dataset of the hub."""
    if found := HUB.fullmatch(str(path)):
        owner, name = found.groups()
        return (
            "name a file or a folder; if it is a dataset of the hub, use hf download "
            f"{owner}/{name} --repo-type dataset --local-dir {name}, then "
            f"{import_command(AUTO, Path(name))}"
        )
    return path_advice(str(path)) or "name a file or a folder"


def kind_of(path: Path, wanted: str) -> str:
    """Return the kind of a corpus: the wanted one, or for AUTO the one that the content shows."""
    if not path.exists():
        raise CorpusError(f"{shown(path)} does not exist: {instead_of(path)}")
    if wanted != AUTO and READERS[wanted].fits(path):
        return wanted
    found = recognized(path)
    if wanted == AUTO and found and found.kind:
        return found.kind
    if wanted == AUTO and is_plain_manifest(path) and path.suffix in (".jsonl", ".json"):
        _, first = next(objects_in(path, Omitted()), ("", {}))
        return "manifest" if "id" in first else "jsonl"
    not_wanted = "is not recognised" if wanted == AUTO else f"is not of the kind {wanted}"
    if found is None:
        raise CorpusError(
            f"{shown(path)} {not_wanted}: the kinds are {', '.join(READERS)}; lhotse's cuts "
            "need no import"
        )
    raise CorpusError(
        f"{shown(path)} {not_wanted}; it looks like {found.what}: {found.to_do(path)}"
    )
