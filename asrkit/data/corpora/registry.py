"""The readers of corpora by kind, for `asrkit data import`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from asrkit.data.corpora.entry import CorpusError, Entry, Omitted, Source
from asrkit.data.corpora.folder import read_folder
from asrkit.data.corpora.huggingface import read_dataset
from asrkit.data.corpora.json_lines import objects_in, read_json_lines, read_own
from asrkit.data.corpora.layouts import read_kaldi, read_librispeech
from asrkit.data.corpora.lhotse import read_lhotse
from asrkit.data.corpora.table import read_table
from asrkit.data.foreign import advice, first_lines, recognized
from asrkit.errors import no_file, shown

AUTO = "auto"
NAMED = ("columns", "audio_root")


class Kind(NamedTuple):
    """A kind of corpus."""

    read: Callable[[Source, Omitted], Iterator[Entry]]  # reader of the entries
    # Options of the command that have an effect on this kind, beside those of all.
    options: tuple[str, ...] = ()
    form: str = "file or folder"  # what it is


READERS = {  # the keys of `KINDS`
    "folder": Kind(read_folder, form="folder"),
    "table": Kind(read_table, NAMED, form="file"),
    "manifest": Kind(read_own, form="file"),
    "jsonl": Kind(read_json_lines, NAMED, form="file"),
    "nemo": Kind(read_json_lines, NAMED, form="file"),
    "kaldi": Kind(read_kaldi, ("audio_root",)),
    "librispeech": Kind(read_librispeech, form="folder"),
    "huggingface": Kind(read_dataset, NAMED),
    "lhotse": Kind(read_lhotse, ("audio_root",)),
}


def kind_of(path: Path, wanted: str) -> str:
    """Return the kind of a corpus: the wanted one, or for AUTO the one that the content shows."""
    if not path.exists():
        raise CorpusError(f"{shown(path)} {no_file(path)}")
    if wanted != AUTO:
        if (form := "folder" if path.is_dir() else "file") not in READERS[wanted].form:
            raise CorpusError(
                f"{shown(path)} is a {form}, but the kind {wanted} is a {READERS[wanted].form}: "
                f"{advice(path) or 'name one'}"
            )
        return wanted
    if found := recognized(path):
        return found
    if path.is_file() and first_lines(path) and not advice(path):
        _, first = next(objects_in(path, Omitted()), ("", {}))
        return "manifest" if "id" in first else "jsonl"
    what = advice(path) or f"the kinds are {', '.join(READERS)}"
    raise CorpusError(f"{shown(path)} is not recognised: {what}")
