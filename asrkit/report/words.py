"""Errors of utterances unit by unit, and their counts by group and by kind."""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

from asrkit.evaluation.wer import ErrorRate, percentage, without_errors, word_alignment
from asrkit.text.graphemes import units

DURATIONS = (0, 1, 2, 3, 5, 8, 12, 20, 30)  # seconds where the bins begin


class Pair(NamedTuple):
    """A unit of the reference and the recognised unit; None for an insertion or a deletion."""

    reference: str | None
    hypothesis: str | None

    @property
    def kind(self) -> str:
        if self.reference is None:
            return "insertion"
        if self.hypothesis is None:
            return "deletion"
        return "equal" if self.reference == self.hypothesis else "substitution"


class Recognized(NamedTuple):
    """An utterance, with its units aligned to the recognised units."""

    id: str
    speaker: str | None
    seconds: float
    pairs: list[Pair]

    @property
    def counts(self) -> ErrorRate:
        """The errors by units."""
        kinds = Counter(pair.kind for pair in self.pairs)
        own = [pair.reference for pair in self.pairs if pair.reference is not None]
        edits = {f"{kind}s": kinds[kind] for kind in ("substitution", "deletion", "insertion")}
        return without_errors(own)._replace(**edits)

    @property
    def errors(self) -> int:
        return self.counts.errors

    @property
    def words(self) -> int:
        """The number of the reference's units."""
        return self.counts.reference_units

    @property
    def rate(self) -> float:
        """Errors in percent of the units, for sorting; without units, 100 for each error."""
        return 100.0 * self.errors / max(1, self.words)


def word_pairs(reference: str, hypothesis: str) -> list[Pair]:
    """Return the units of an alignment with the fewest errors, in order."""
    words, found = units(reference), units(hypothesis)
    return [
        Pair(None if i is None else words[i], None if j is None else found[j])
        for i, j in word_alignment(words, found)
    ]


def worst(utterances: Iterable[Recognized], count: int) -> list[Recognized]:
    """Return the utterances with most errors; equal numbers are sorted by error rate."""
    wrong = [each for each in utterances if each.errors]
    return sorted(wrong, key=lambda each: (-each.errors, -each.rate, each.id))[:count]


class Group(NamedTuple):
    """The totals of some utterances."""

    name: str
    utterances: int
    seconds: float
    words: int
    errors: int

    @property
    def rate(self) -> float | None:
        """Errors in percent of the words; None for a group without words."""
        return percentage(self.errors, self.words)


def grouped(
    utterances: Iterable[Recognized], name_of: Callable[[Recognized], str | None]
) -> list[Group]:
    """Sum utterances by name, in order of first occurrence; skip utterances without a name."""
    groups: dict[str, Group] = {}
    for each in utterances:
        name = name_of(each)
        if name is not None:
            _, count, seconds, words, errors = groups.get(name, Group(name, 0, 0.0, 0, 0))
            groups[name] = Group(
                name, count + 1, seconds + each.seconds, words + each.words, errors + each.errors
            )
    return list(groups.values())


def by_duration(utterances: Iterable[Recognized]) -> list[Group]:
    """Sum utterances in bins of duration, the shortest first, without empty bins."""
    shortest_first = sorted(utterances, key=lambda each: each.seconds)
    return grouped(shortest_first, lambda each: duration_name(each.seconds))


def duration_name(seconds: float) -> str:
    for low, high in pairwise(DURATIONS):
        if seconds < high:
            return f"{low} to {high} s"
    return f"{DURATIONS[-1]} s and more"


def confusions(utterances: Iterable[Recognized]) -> dict[str, Counter[Pair]]:
    """Count each error, by kind."""
    found: dict[str, Counter[Pair]] = {
        k: Counter() for k in ("substitution", "deletion", "insertion")
    }
    for each in utterances:
        for pair in each.pairs:
            if pair.kind != "equal":
                found[pair.kind][pair] += 1
    return found
