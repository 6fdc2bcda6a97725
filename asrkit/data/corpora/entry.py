"""The utterances that a reader finds in a corpus, and those that it leaves out."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from asrkit.errors import UserError, printable, shown

EXAMPLES = 3  # of each reason
MOST_ENTRIES = 10_000_000


class CorpusError(UserError):
    """A corpus that cannot be imported; the message has its path and what to do."""


class Source(NamedTuple):
    """A corpus to read, with the options of the command.

    Fields:
        path: file or folder.
    """

    path: Path


class Entry(NamedTuple):
    """An utterance before its audio is examined.

    Fields:
        id: name, unique in the corpus.
        audio: path of the file.
        text: transcript, or None.
        speaker: name, or None.
        start: seconds of the file before the utterance.
        duration: seconds of the utterance; None for the rest of the file.
        channel: number of the channel, from 0; None for the mean of all.
        split: the corpus's own part, train, dev or test; None if there is not one.
    """

    id: str
    audio: Path
    text: str | None
    speaker: str | None = None
    start: float = 0.0
    duration: float | None = None
    channel: int | None = None
    split: str | None = None


class Omitted:
    """Counts of what an import leaves out by reason, with a few examples of each."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.examples: dict[str, list[str]] = {}

    def add(self, reason: str, example: object) -> None:
        """Count one thing that is left out.

        Args:
            reason: noun phrase that is equal for all examples.
            example: name of the thing, with its value where that helps.
        """
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
