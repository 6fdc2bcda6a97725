"""Corpora in tar archives: WebDataset's, and the audio of NeMo's tarred datasets."""

import logging
import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from asrkit.data.corpora.entry import CorpusError, Entry, Omitted, Source
from asrkit.data.corpora.folder import files_of, read_folder
from asrkit.data.foreign import TAR, TAR_FAULTS
from asrkit.data.splits import split_of
from asrkit.errors import reason, shown

logger = logging.getLogger(__name__)

NUMBER = re.compile(r"_(\d+)\.tar$")  # audio_0.tar


def read_webdataset(source: Source, omitted: Omitted) -> Iterator[Entry]:
    """Yield the pairs of audio and text of all tars, which are unpacked in `source.audio_output`.

    The names of the tars and their folders are the parts, and begin the ids.
    """
    top = source.path if source.path.is_dir() else source.path.parent
    for path in files_of(top) if source.path.is_dir() else [source.path]:
        if not TAR.search(path.name):
            continue
        name = "-".join(path.relative_to(top).parts)
        folder = unpacked(path, source.audio_output / TAR.sub("", name), omitted)
        split = split_of(path.relative_to(source.path.parent))
        for entry in read_folder(source._replace(path=folder), omitted):
            yield entry._replace(id=f"{folder.name}-{entry.id}", split=split)


def unpacked(path: Path, folder: Path, omitted: Omitted) -> Path:
    """Unpack the files of a tar in a folder and return the folder; no member can leave it."""
    folder = folder.absolute()
    try:
        with tarfile.open(path) as tar:
            for member in tar:
                target = Path(os.path.normpath(folder / member.name))
                # The size of a sparse member is not bounded by that of the archive.
                is_plain = member.isreg() and not member.issparse()
                file = tar.extractfile(member) if is_plain else None
                if file is None or not target.is_relative_to(folder):
                    if not member.isdir():
                        omitted.add("member of a tar that is not a file inside it", member.name)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                with file, target.open("wb") as copy:
                    shutil.copyfileobj(file, copy)
    except TAR_FAULTS as error:
        raise CorpusError(f"{shown(path)} cannot be unpacked: {reason(error)}") from None
    return folder


def unpacked_shards(source: Source, root: Path, omitted: Omitted) -> dict[str, Path]:
    """Unpack the tars of NeMo's shards in a folder; return a folder for each number."""
    found = {number[1]: path for path in root.glob("*.tar") if (number := NUMBER.search(path.name))}
    if not found:
        logger.warning(
            "%s is of a tarred dataset of NeMo, but %s has no audio_0.tar, …: name the folder of "
            "the tars with --audio-root",
            shown(source.path), shown(root),
        )  # fmt: skip
    return {
        number: unpacked(path, source.audio_output / path.stem, omitted)
        for number, path in found.items()
    }
