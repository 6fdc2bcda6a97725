"""The recordings of a command: files, folders of files, and manifests."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from asrkit.audio.files import SUFFIXES, opened
from asrkit.audio.samples import channel_name
from asrkit.data.manifest import LeftOut, ManifestError, read_manifest, require_shards
from asrkit.data.recording import Recording
from asrkit.errors import UserError, shown
from asrkit.extras import need

logger = logging.getLogger(__name__)

WINDOW = 64  # items of a thread that are read before the results are used
Item = TypeVar("Item")
Result = TypeVar("Result")


def read_recordings(path: str) -> Iterator[Recording]:
    """Yield the recordings of a manifest or of shards."""
    if Path(path).is_dir():
        require_shards(Path(path))
        need("pyarrow")
        from asrkit.data.shards import open_index, recordings_at

        table = open_index(path)
        yield from recordings_at(table, path, np.arange(table.num_rows))
        return
    yield from read_manifest(path)


def read_distinct(path: str) -> Iterator[Recording]:
    """Yield recordings like `read_recordings`, and reject an id that occurs twice."""
    ids = set()
    for each in read_recordings(path):
        if each.id in ids:
            raise ManifestError(f"{path}: id {each.id!r} occurs twice")
        ids.add(each.id)
        yield each


def jobs_of(
    files: Sequence[str],
    manifest: str | None,
    left_out: list[LeftOut],
    channel: int | Literal["split"] | None = None,
    track: int | None = None,
) -> list[Recording]:
    """Return the jobs for files, then those for a manifest.

    Args:
        channel: number of the channel of each file, from 0; None for the mean of all; "split" for a
            job per channel.
    """
    jobs: list[Recording] = []
    for path in found(files, left_out):
        if channel != "split":
            jobs.append(file_of(path, channel=channel, track=track))
            continue
        try:
            with opened(path, track) as file:
                count = file.num_channels
        except UserError as error:
            left_out.append(LeftOut(as_text(path), str(error)))
            continue
        jobs += [
            file_of(path, channel=number, track=track, speaker=channel_name(number))
            for number in range(count)
        ]
    if manifest:
        jobs += read_distinct(manifest)
    return jobs


def file_of(path: str, **values: Any) -> Recording:
    """Return the recording of a file whose path may be anything that a system allows."""
    return Recording.model_construct(id=as_text(path), audio=path, **values)


def found(paths: Sequence[str], left_out: list[LeftOut]) -> Iterator[str]:
    """Yield the paths of files, and of the audio files in folders and their subfolders, sorted.

    The ending of a name in a folder tells whether the file is audio. A warning names the other
    files. Manifests and folders without audio are appended to `left_out`.
    """
    for path in paths:
        if path.endswith(".jsonl"):
            left_out.append(LeftOut(as_text(path), "is a manifest: name it with --manifest"))
            continue
        if not Path(path).is_dir():
            yield path
            continue
        inside = sorted(files_of(Path(path)))
        sound = [each for each in inside if each.suffix.lower() in SUFFIXES]
        if not sound:
            left_out.append(LeftOut(as_text(path), "has no file whose name ends like audio"))
        else:
            name_unread([each for each in inside if each.suffix.lower() not in SUFFIXES])
        yield from map(str, sound)


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders in the order of their names.

    Hidden files and folders are skipped. Links to folders are not followed; a warning names them.
    """
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        name_unread([path for name in folders if (path := Path(place, name)).is_symlink()])
        paths = (Path(place, name) for name in sorted(names) if not name.startswith("."))
        yield from (path for path in paths if path.is_file())


def name_unread(paths: Sequence[Path]) -> None:
    """Log how many files, or links to folders, are not read, with the first names."""
    if paths:
        named = ", ".join(map(shown, paths[:3])) + (" …" if len(paths) > 3 else "")
        logger.warning("not read, by their names or as links: %d, %s", len(paths), named)


def in_threads(act: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield a function's results in order, by a thread a core, without all items in memory."""
    waiting, count = iter(items), os.cpu_count() or 1
    with ThreadPoolExecutor(count) as pool:
        while part := list(islice(waiting, WINDOW * count)):
            yield from pool.map(act, part)


def as_text(path: str) -> str:
    """Return a path as text, with escapes for bytes that are not UTF-8."""
    return path.encode("utf-8", "backslashreplace").decode()
