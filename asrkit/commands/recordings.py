"""Reading recordings and writing transcripts, for decode and align."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from asrkit.audio.open_file import opened
from asrkit.commands.arguments import Parser
from asrkit.data.labelled import Labelled, read_labelled
from asrkit.data.manifest import LeftOut
from asrkit.errors import UserError, printable
from asrkit.files import replacing
from asrkit.runtime.formats import FORMATS, Recording, write

LONGEST_NAME = 200  # bytes: file systems allow 255, with the ending and the prefix of `replacing`

Item = TypeVar("Item")


def file_name(job: Labelled) -> str:
    """The name of a recording's output file, without an ending; a long one is cut and hashed."""
    path = as_text(job.path)
    name = job.id
    if name.startswith(path):
        name = Path(path).stem + name.removeprefix(path)
    name = re.sub(r"[/\\\x00-\x1f\x7f]", "_", name)
    if len(name.encode()) <= LONGEST_NAME:
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    return name.encode()[: LONGEST_NAME - 9].decode(errors="ignore") + "-" + digest


def jobs_of(
    files: Sequence[str],
    manifest: str | None,
    left_out: list[LeftOut],
    channel: int | Literal["split"] | None = None,
    track: int | None = None,
) -> list[Labelled]:
    """The jobs of files, then of a manifest.

    Args:
        files: paths.
        manifest: path of a manifest of any kind, or None.
        left_out: what cannot be used is appended to it.
        channel: number of the channel of each file, from 0; None for the mean of all; "split" for a
            job of each channel.
        track: number of the audio track of each file, from 0; None for the default one.
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
    """A path with escapes for bytes that are not UTF-8, which a file's name may hold."""
    return path.encode("utf-8", "backslashreplace").decode()


def timed(
    blocks: Iterable[tuple[np.ndarray, int]], seconds: list[float]
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the blocks; append the length of each to `seconds`."""
    for block, rate in blocks:
        seconds.append(len(block) / rate)
        yield block, rate


def by_length(
    items: Iterable[Item], seconds: Callable[[Item], float], batch_seconds: float
) -> Iterator[list[Item]]:
    """Batches of items of similar length, the longest first; of one if it is longer than a batch.

    Args:
        items: recordings.
        seconds: how long one is.
        batch_seconds: audio in a batch at most, all of them as long as its longest.
    """
    waiting = sorted(items, key=seconds)
    while waiting:
        count = max(1, int(batch_seconds / max(seconds(waiting[-1]), 0.1)))
        yield waiting[-count:]
        del waiting[-count:]


def in_a_row(form: str, job: Labelled, transcript: Recording, several: bool) -> str:
    """What is written of a recording, without the header, where there may be several."""
    shown = FORMATS[form].write(transcript)
    return f"{printable(job.id)}\t{shown}" if form == "txt" and several else shown


def add_output(arguments: Parser, form: str) -> None:
    """Add the options of the output's format and place."""
    group = arguments.group("output")
    group.add_argument(
        "--format", choices=FORMATS, default=form, help=f"of what is written (default {form})"
    )
    group.add_argument("--output-dir", metavar="DIR", help="write a file there for each")


class Output:
    """Writes transcripts: one after another to standard output, or each to a file of its own.

    Args:
        form: name of the format.
        folder: of the files; None for standard output.
        jobs: all recordings.

    Raises:
        UserError: if a file of the format cannot hold all recordings, or two would be written to
            the same file.
    """

    def __init__(self, form: str, folder: str | None, jobs: Sequence[Labelled]) -> None:
        self.form, self.several = form, len(jobs) > 1
        self.folder = None if folder is None else Path(folder)
        self.fresh = True
        if self.folder is None:
            if self.several and not FORMATS[form].joins:
                raise UserError(
                    f"a file of {form} holds one recording, not {len(jobs)}: --output-dir DIR "
                    "writes a file for each"
                )
            return
        first: dict[str, Labelled] = {}
        for job in jobs:
            other = first.setdefault(file_name(job), job)
            if other is not job:
                raise UserError(
                    f"{other.id} and {job.id} would both be {self.path(job)}: decode them into "
                    "folders of their own"
                )

    def path(self, job: Labelled) -> Path:
        return (self.folder or Path()) / f"{file_name(job)}.{self.form}"

    def write(self, job: Labelled, transcript: Recording) -> None:
        if self.folder is not None:
            with replacing(self.path(job)) as temporary:
                temporary.write_text(write(self.form, [transcript]), encoding="utf-8")
            return
        shown = in_a_row(self.form, job, transcript, self.several)
        if self.fresh:
            shown = FORMATS[self.form].header + shown
        self.fresh = False
        print(shown, end="", flush=True)
