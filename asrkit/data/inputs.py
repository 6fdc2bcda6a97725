"""The recordings of a command: files, folders of files, and manifests."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from asrkit.audio.files import SUFFIXES, opened
from asrkit.audio.samples import channel_name
from asrkit.data.manifest import LeftOut, ManifestError, read_manifest
from asrkit.data.recording import Recording
from asrkit.errors import UserError, shown
from asrkit.extras import need

logger = logging.getLogger(__name__)


def read_recordings(path: str, left_out: list[LeftOut]) -> Iterator[Recording]:
    """Yield the recordings of a manifest or of shards; append what is lost to `left_out`."""
    if Path(path).is_dir():
        need("pyarrow")
        from asrkit.data.shards import open_index, recordings_at

        table = open_index(path, left_out)
        yield from recordings_at(table, path, np.arange(table.num_rows))
        return
    yield from read_manifest(path)


def read_distinct(path: str, left_out: list[LeftOut]) -> Iterator[Recording]:
    """Yield recordings like `read_recordings`, and reject an id that occurs twice."""
    ids = set()
    for each in read_recordings(path, left_out):
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
        jobs += read_recordings(manifest, left_out)
    return jobs


def file_of(path: str, **values: Any) -> Recording:
    """Return the recording of a file whose path may be anything that a system allows."""
    return Recording.model_construct(id=as_text(path), audio=path, **values)


def found(paths: Sequence[str], left_out: list[LeftOut]) -> Iterator[str]:
    """Yield the paths of files, and of the audio files in folders and their subfolders, sorted.

    The ending of a name in a folder tells whether the file is audio. A warning names the other
    files. Hidden files and folders are not searched. Folders without audio are appended to
    `left_out`.
    """
    for path in paths:
        if not Path(path).is_dir():
            yield path
            continue
        inside = [each for each in sorted(Path(path).rglob("*")) if is_visible(each, Path(path))]
        sound = [each for each in inside if each.suffix.lower() in SUFFIXES]
        if not sound:
            left_out.append(LeftOut(as_text(path), "has no file whose name ends like audio"))
        elif others := [each for each in inside if each.suffix.lower() not in SUFFIXES]:
            named = ", ".join(map(shown, others[:3])) + (" …" if len(others) > 3 else "")
            logger.warning(
                "%d of %d files in %s are left out, because their names do not end like audio: %s",
                len(others), len(inside), shown(Path(path)), named,
            )  # fmt: skip
        yield from map(str, sound)


def is_visible(path: Path, folder: Path) -> bool:
    """Return whether a path in a folder is a file, and no part of it below the folder is hidden."""
    below = path.relative_to(folder).parts
    return path.is_file() and not any(part.startswith(".") for part in below)


def as_text(path: str) -> str:
    """Return a path as text, with escapes for bytes that are not UTF-8."""
    return path.encode("utf-8", "backslashreplace").decode()
