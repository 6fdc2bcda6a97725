"""The utterances that a reader finds in a corpus, and those that it leaves out."""

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from asrkit.audio.samples import TOLERANCE
from asrkit.errors import UserError, printable, shown
from asrkit.lines import LineKind, text_lines

EXAMPLES = 3  # of each reason


class CorpusError(UserError):
    """A corpus that cannot be imported; the message has its path and what to do."""


TEXT = LineKind("a text", CorpusError, longest=1 << 20, most_empty=10_000)


class Ids:
    """Unique ids from the names of files: a, then a-2 for another part or another file."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def __call__(self, path: Path) -> str:
        stem = path.stem
        count = self.counts[stem] = self.counts.get(stem, 0) + 1
        return stem if count == 1 else f"{stem}-{count}"


class Source(NamedTuple):
    """A corpus to read, with the options of the command."""

    path: Path  # file or folder
    ids: Ids  # ids of all sources of an import
    # Folder in which relative paths of audio begin; None for the reader's default.
    audio_root: Path | None = None
    # Columns of a table by the keys of a manifest, as the user named them.
    columns: Mapping[str, str] = {}
    audio_output: Path = Path("audio")  # folder for audio that is inside other files
    split: str | None = None  # the part that a list is, by its name beside other lists


class Entry(NamedTuple):
    """An utterance before its audio is examined."""

    id: str  # name, unique in the corpus
    audio: Path  # path of the file
    text: str | None  # transcript, or None
    speaker: str | None = None  # name, or None
    start: float = 0.0  # seconds of the file before the utterance
    duration: float | None = None  # seconds of the utterance; None for the rest of the file
    channel: int | None = None  # number of the channel, from 0; None for the mean of all
    split: str | None = None  # the corpus's own part, train, dev or test; None if there is not one
    overshoot: float = TOLERANCE  # seconds by which the end may be beyond the file; it is cut
    track: int | None = None  # number of the audio track, from 0; None for the default one
    first_byte: int = 0  # place of the audio inside the file
    num_bytes: int | None = None  # size of the audio inside the file; None for the whole file


class Omitted:
    """Counts of what an import leaves out by reason, with a few examples of each."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.examples: dict[str, list[str]] = {}

    def add(self, reason: str, example: object) -> None:
        """Count one thing that is left out, for a reason that is equal for all its examples."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < EXAMPLES:
            examples.append(
                shown(example) if isinstance(example, Path) else printable(str(example))
            )

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def lines(self) -> Iterator[str]:
        """Yield a line for each reason, the most frequent first."""
        for reason, count in sorted(self.counts.items(), key=lambda each: -each[1]):
            more = "; …" if count > EXAMPLES else ""
            yield f"left out {count}, {reason}: {'; '.join(self.examples[reason])}{more}"


def lines_of(path: Path, most: float = math.inf) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file that are not empty; see `asrkit.lines.text_lines`."""
    return text_lines(path, TEXT, most)


def found_audio(name: str, root: Path, omitted: Omitted) -> Path | None:
    """Return the path of audio that a corpus names; None, with a reason, for what must not be read.

    A relative path stays in the folder `root`. An absolute path is read as it is.
    """
    if "://" in name or name.rstrip().endswith("|"):
        omitted.add("audio that is not a local file", name)
        return None
    if not os.path.isabs(name) and os.path.normpath(name).split(os.sep)[0] == os.pardir:
        omitted.add("path that leaves the folder (--audio-root names another folder)", name)
        return None
    return root / PurePosixPath(name)


def seconds_of(value: object) -> float | None:
    """Return a number or its text as seconds; None if it is not a finite number from 0."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
