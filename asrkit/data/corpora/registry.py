"""The kinds of corpora that `asrkit data import` reads."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from asrkit.data.corpora.entry import CorpusError, Entry, Omitted, Source
from asrkit.data.corpora.folder import read_folder
from asrkit.data.corpora.table import is_common_voice, is_table, read_common_voice, read_table
from asrkit.data.foreign import recognized
from asrkit.errors import shown

AUTO = "auto"


class Kind(NamedTuple):
    """A kind of corpus.

    Fields:
        read: reader of the entries.
        fits: function that returns whether a path can be such a corpus.
        meaning: description for the help.
        options: options of the command that have an effect on this kind, beside those of all.
    """

    read: Callable[[Source, Omitted], Iterator[Entry]]
    fits: Callable[[Path], bool]
    meaning: str
    options: tuple[str, ...] = ()


READERS = {
    "folder": Kind(read_folder, Path.is_dir,
        "recordings with a .txt beside each; the speaker is the subfolder"),
    "table": Kind(read_table, is_table,
        "CSV or TSV with a line of column names", ("columns", "audio_root")),
    "commonvoice": Kind(read_common_voice, is_common_voice,
        "folder of a language: its .tsv files and clips"),
}  # fmt: skip


def kind_of(path: Path, wanted: str) -> str:
    """Return the kind of a corpus.

    Args:
        path: file or folder.
        wanted: kind that the user named, or AUTO.

    Raises:
        CorpusError: for an unknown corpus, or one of another kind; the message names what it is.
    """
    if not path.exists():
        raise CorpusError(f"{shown(path)} does not exist: name a file or a folder")
    if wanted != AUTO and READERS[wanted].fits(path):
        return wanted
    found = recognized(path)
    if wanted == AUTO and found and found.kind:
        return found.kind
    not_wanted = "is not recognised" if wanted == AUTO else f"is not of the kind {wanted}"
    if found is None:
        raise CorpusError(
            f"{shown(path)} {not_wanted}: the kinds are {', '.join(READERS)}; manifests of asrkit "
            "and lhotse's cuts need no import"
        )
    raise CorpusError(
        f"{shown(path)} {not_wanted}; it looks like {found.what}: {found.to_do(path)}"
    )
