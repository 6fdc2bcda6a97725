"""The kinds of corpora that `asrkit data import` reads."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from asrkit.data.corpora.entry import CorpusError, Entry, Omitted, Source
from asrkit.data.corpora.folder import read_folder
from asrkit.data.corpora.huggingface import is_dataset, read_dataset
from asrkit.data.corpora.json_lines import read_json_lines, read_own
from asrkit.data.corpora.kaldi import is_kaldi, read_kaldi
from asrkit.data.corpora.layouts import (
    is_librispeech,
    is_ljspeech,
    read_librispeech,
    read_ljspeech,
)
from asrkit.data.corpora.lhotse_manifests import has_recordings, read_lhotse
from asrkit.data.corpora.table import is_common_voice, is_table, read_common_voice, read_table
from asrkit.data.foreign import recognized
from asrkit.data.manifest import is_lhotse
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


def is_recognized_as(kind: str) -> Callable[[Path], bool]:
    """Return a function that returns whether a path is of this kind by its content."""

    def fits(path: Path) -> bool:
        found = recognized(path)
        return found is not None and found.kind == kind

    return fits


def is_plain_manifest(path: Path) -> bool:
    """Return whether a path is a file that begins like a manifest of asrkit."""
    return path.is_file() and recognized(path) is None and not is_lhotse(path)


READERS = {
    "folder": Kind(read_folder, Path.is_dir,
        "recordings with .txt, .lab, .srt, .vtt or .TextGrid beside each"),
    "table": Kind(read_table, is_table,
        "CSV or TSV with a line of column names", ("columns", "audio_root")),
    "commonvoice": Kind(read_common_voice, is_common_voice,
        "folder of a language: its .tsv files and clips"),
    "manifest": Kind(read_own, is_plain_manifest, "manifest of asrkit, to divide it anew"),
    "nemo": Kind(read_json_lines, is_recognized_as("nemo"),
        "manifest of NeMo: audio_filepath, text, duration, offset", ("audio_root",)),
    "wenet": Kind(read_json_lines, is_recognized_as("wenet"),
        "list of WeNet: key, wav, txt", ("audio_root",)),
    "kaldi": Kind(read_kaldi, is_kaldi,
        "folder with wav.scp and text, perhaps segments and utt2spk", ("audio_root",)),
    "ljspeech": Kind(read_ljspeech, is_ljspeech, "folder with metadata.csv and wavs"),
    "librispeech": Kind(read_librispeech, is_librispeech,
        "folders of speakers and chapters with .trans.txt"),
    "huggingface": Kind(read_dataset, is_dataset,
        "parquet files, or a folder of save_to_disk", ("columns", "audio_root")),
    "lhotse": Kind(read_lhotse, has_recordings,
        "recordings and supervisions of lhotse, or the folder of both", ("audio_root",)),
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
    if wanted == AUTO and is_plain_manifest(path) and path.suffix in (".jsonl", ".json"):
        return "manifest"
    not_wanted = "is not recognised" if wanted == AUTO else f"is not of the kind {wanted}"
    if found is None:
        raise CorpusError(
            f"{shown(path)} {not_wanted}: the kinds are {', '.join(READERS)}; lhotse's cuts "
            "need no import"
        )
    raise CorpusError(
        f"{shown(path)} {not_wanted}; it looks like {found.what}: {found.to_do(path)}"
    )
