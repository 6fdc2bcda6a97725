"""The sources of an import, and counts of what is left out."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from asrkit.errors import UserError, printable
from asrkit.lines import LineKind, text_lines

EXAMPLES = 3  # of each reason


class CorpusError(UserError):
    """A corpus that cannot be imported; the message has its path and what to do."""


TEXT = LineKind("a text", CorpusError, longest=1 << 20)


class Source(NamedTuple):
    """A corpus to read, with the options of the command."""

    path: Path  # file or folder
    # Folder in which relative paths of audio begin; None for the reader's default.
    audio_root: Path | None = None
    # Columns of a table by the keys of a manifest, as the user named them.
    columns: Mapping[str, str] = {}
    audio_output: Path = Path("audio")  # folder for audio that is inside other files
    split: str | None = None  # the part that a list is, by its name beside other lists


class Omitted:
    """Counts of what an import or a normalisation leaves out by reason, with a few examples."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.examples = defaultdict[str, list[str]](list)

    def add(self, reason: str, example: object) -> None:
        """Count one thing that is left out, for a reason that is equal for all its examples."""
        self.counts[reason] += 1
        if len(self.examples[reason]) < EXAMPLES:
            self.examples[reason].append(printable(str(example)))

    def lines(self) -> Iterator[str]:
        """Yield a line for each reason, the most frequent first."""
        for reason, count in self.counts.most_common():
            more = "; …" if count > EXAMPLES else ""
            yield f"left out {count}, {reason}: {'; '.join(self.examples[reason])}{more}"


class Ids:
    """Unique ids from the names of files: a, then a-2 for another part or another file."""

    def __init__(self) -> None:
        self.counts = Counter[str]()

    def __call__(self, path: Path) -> str:
        self.counts[path.stem] += 1
        count = self.counts[path.stem]
        return path.stem if count == 1 else f"{path.stem}-{count}"


def lines_of(path: Path, most: float = math.inf) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file that are not empty; see `asrkit.lines.text_lines`."""
    return text_lines(path, TEXT, most)
