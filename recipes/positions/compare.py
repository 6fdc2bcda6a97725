"""What the figures allow to be said: spreads, intervals, and what cannot be told apart."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Score(NamedTuple):
    """Errors of one model: those in each recording, and its words or letters."""

    errors: Sequence[int]
    units: Sequence[int]

    @property
    def rate(self) -> float:
        """In percent."""
        return 100.0 * sum(self.errors) / max(1, sum(self.units))


class Comparison(NamedTuple):
    best: str  # the kind with the lowest mean
    tied: list[str]  # other kinds that cannot be told apart from it, best first
    between: float  # standard deviation of the kinds' means
    within: float | None  # of the seeds of one kind, pooled; None with one seed a kind


def compare(scores: Mapping[str, Sequence[Score]]) -> Comparison:
    """Kinds by their error rates, one score for each seed.

    With several seeds, two kinds cannot be told apart if their means differ by less than twice
    the standard error of that difference, from the pooled spread of the seeds; with one seed,
    if their bootstrap intervals over recordings overlap.
    """
    rates = {kind: [score.rate for score in of_kind] for kind, of_kind in scores.items()}
    means = {kind: statistics.fmean(of_kind) for kind, of_kind in rates.items()}
    ranked = sorted(means, key=lambda kind: means[kind])
    best, within = ranked[0], pooled_deviation(list(rates.values()))
    if within is None:
        intervals = {kind: bootstrap_interval(scores[kind][0]) for kind in ranked}
        tied = [kind for kind in ranked[1:] if overlap(intervals[kind], intervals[best])]
    else:
        tied = []
        for kind in ranked[1:]:
            error = within * math.sqrt(1 / len(rates[kind]) + 1 / len(rates[best]))
            if means[kind] - means[best] < 2 * error or means[kind] == means[best]:
                tied.append(kind)
    between = statistics.stdev(means.values()) if len(means) > 1 else 0.0
    return Comparison(best, tied, between, within)


def pooled_deviation(groups: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation within groups around their own means; None without two of a group."""
    degrees = sum(len(group) - 1 for group in groups)
    if degrees == 0:
        return None
    squares = sum((x - statistics.fmean(group)) ** 2 for group in groups for x in group)
    return math.sqrt(squares / degrees)


def bootstrap_interval(score: Score, draws: int = 2000) -> tuple[float, float]:
    """The middle 95 % of the error rate of recordings drawn again, with replacement."""
    errors, units = np.asarray(score.errors), np.asarray(score.units)
    drawn = np.random.default_rng(0).integers(len(errors), size=(draws, len(errors)))
    rates = 100.0 * errors[drawn].sum(1) / np.maximum(1, units[drawn].sum(1))
    low, high = np.percentile(rates, [2.5, 97.5])
    return float(low), float(high)


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
