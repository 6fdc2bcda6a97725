"""The input recordings of a command: files, and manifests of any kind."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np

from asrkit.audio.open_file import opened
from asrkit.data.labelled import Labelled, read_labelled
from asrkit.data.manifest import LeftOut
from asrkit.errors import UserError


def jobs_of(
    files: Sequence[str],
    manifest: str | None,
    left_out: list[LeftOut],
    channel: int | Literal["split"] | None = None,
    track: int | None = None,
) -> list[Labelled]:
    """Return the jobs for files, then those for a manifest.

    Args:
        files: paths of audio files.
        manifest: path of a manifest of any kind, or None.
        left_out: list to which unusable recordings are appended.
        channel: number of the channel of each file, from 0; None for the mean of all; "split" for a
            job per channel.
        track: number of the audio track of each file, from 0; None for the default track.
    """
    jobs: list[Labelled] = []
    for path in files:
        if channel != "split":
            jobs.append(Labelled(as_text(path), path, channel=channel, track=track))
            continue
        try:
            with opened(path, track) as file:
                count = file.num_channels
        except UserError as error:
            left_out.append(LeftOut(as_text(path), str(error)))
            continue
        names = ((f"{as_text(path)}#{number}", number) for number in range(count))
        jobs += [Labelled(name, path, channel=number, track=track) for name, number in names]
    if manifest:
        jobs += read_labelled(manifest, left_out)
    return jobs


def as_text(path: str) -> str:
    """Return a path as text, with escapes for bytes that are not UTF-8."""
    return path.encode("utf-8", "backslashreplace").decode()


def timed(
    blocks: Iterable[tuple[np.ndarray, int]], seconds: list[float]
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the blocks; append the length of each to `seconds`."""
    for block, rate in blocks:
        seconds.append(len(block) / rate)
        yield block, rate
