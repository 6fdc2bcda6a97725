"""Errors of utterances unit by unit, and their counts by group and by kind."""

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

from asrkit.evaluation.wer import ErrorRate, total, without_errors, word_alignment
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


def word_pairs(reference: str, hypothesis: str) -> list[Pair]:
    """Return the units of an alignment with the fewest errors, in order."""
    words, found = units(reference), units(hypothesis)
    return [
        Pair(None if i is None else words[i], None if j is None else found[j])
        for i, j in word_alignment(words, found)
    ]


def worst(utterances: Iterable[Recognized], count: int) -> list[Recognized]:
    """Return the utterances with most errors; equal numbers are sorted by error rate."""
    wrong = [(each.counts, each) for each in utterances if each.counts.errors]
    wrong.sort(key=lambda pair: (-pair[0].errors, pair[0].reference_units, pair[1].id))
    return [each for _, each in wrong[:count]]


class Group(NamedTuple):
    """The totals of some utterances."""

    name: str
    utterances: int
    seconds: float
    counts: ErrorRate


def grouped(
    utterances: Iterable[Recognized], name_of: Callable[[Recognized], str | None]
) -> list[Group]:
    """Sum utterances by name, in order of first occurrence; skip utterances without a name."""
    groups: dict[str, list[Recognized]] = {}
    for each in utterances:
        if (name := name_of(each)) is not None:
            groups.setdefault(name, []).append(each)
    return [
        Group(name, len(own), sum(each.seconds for each in own), total(each.counts for each in own))
        for name, own in groups.items()
    ]


def by_duration(utterances: Iterable[Recognized]) -> list[Group]:
    """Sum utterances in bins of duration, the shortest first, without empty bins."""
    names = [f"{low} to {high} s" for low, high in pairwise(DURATIONS)]
    names.append(f"{DURATIONS[-1]} s and more")
    shortest_first = sorted(utterances, key=lambda each: each.seconds)
    return grouped(shortest_first, lambda each: names[bisect(DURATIONS, each.seconds) - 1])


def confusions(utterances: Iterable[Recognized]) -> dict[str, Counter[Pair]]:
    """Count each error, by kind."""
    kinds = "substitution", "deletion", "insertion"
    pairs = [pair for each in utterances for pair in each.pairs]
    return {kind: Counter(pair for pair in pairs if pair.kind == kind) for kind in kinds}
