"""Comparing kinds statistically: standard deviations, and which kinds cannot be told apart."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

CERTAINTY = 95.0  # percent of studies of kinds that are all alike in which none is told apart
FEWEST = 30  # recordings, to draw from again


class Score(NamedTuple):
    """Errors of one model: those in each recording, and its words or letters."""

    errors: Sequence[int]
    units: Sequence[int]

    @property
    def rate(self) -> float:
        """The error rate in percent."""
        return 100.0 * sum(self.errors) / max(1, sum(self.units))

    @property
    def log_rate(self) -> float:
        """The logarithm of a rate of at least half an error: kinds and seeds differ by factors."""
        return math.log(max(0.5, sum(self.errors)) / max(1, sum(self.units)))


class Comparison(NamedTuple):
    best: str  # the kind with the lowest mean
    tied: list[str]  # other kinds that cannot be told apart from it, best first
    between: float  # standard deviation of the kinds' mean log rates
    within: float | None  # of the seeds of one kind, pooled; None with one seed a kind
    decided: bool = True  # False where there is too little to tell anything apart


def compare(scores: Mapping[str, Sequence[Score]]) -> Comparison:
    """Compare kinds by the logarithms of their error rates, one score for each seed.

    Told apart from the best are those that differ by more than the largest difference among as
    many kinds that are all alike: with several seeds, by the pooled spread of the seeds (Tukey's
    range test); with one, by drawing the same recordings again for all kinds.
    """
    logs = {kind: [score.log_rate for score in of_kind] for kind, of_kind in scores.items()}
    means = {kind: statistics.fmean(of_kind) for kind, of_kind in logs.items()}
    ranked = sorted(means, key=lambda kind: means[kind])
    best, within = ranked[0], pooled_deviation(list(logs.values()))
    between = statistics.stdev(means.values()) if len(means) > 1 else 0.0
    decided = True
    if within is None:
        single = {kind: of_kind[0] for kind, of_kind in scores.items()}
        decided = len(single[best].units) >= FEWEST
        limits = dict.fromkeys(ranked, gap_of_recordings(list(single.values())))
    else:
        counts = {kind: len(of_kind) for kind, of_kind in logs.items()}
        gap = within * gap_of_seeds(list(counts.values()))
        limits = {k: gap * math.sqrt(1 / counts[k] + 1 / counts[best]) for k in ranked}
    tied = [k for k in ranked[1:] if means[k] - means[best] <= limits[k]]
    return Comparison(best, tied if decided else ranked[1:], between, within, decided)


def gap_of_seeds(counts: Sequence[int], draws: int = 20_000) -> float:
    """The largest difference of means among kinds that are all alike, in its standard errors.

    Args:
        counts: seeds of each kind.
        draws: studies made up.
    """
    draw, sizes = np.random.default_rng(0), np.asarray(counts)
    means = draw.standard_normal((draws, len(sizes))) / np.sqrt(sizes)
    degrees = sizes.sum() - len(sizes)
    deviation = np.sqrt(draw.chisquare(degrees, draws) / degrees)
    errors = np.sqrt(1 / sizes[:, None] + 1 / sizes)
    gaps = np.abs(means[:, :, None] - means[:, None, :]) / errors  # (draws, kinds, kinds)
    return float(np.percentile(gaps.max((1, 2)) / deviation, CERTAINTY))


def gap_of_recordings(scores: Sequence[Score], draws: int = 2000) -> float:
    """The largest difference of log rates that comes of which recordings there are.

    Recordings are drawn again with replacement, the same for all kinds; what a kind's rate moves
    by is chance, and the range of these movements over the kinds is the difference that chance
    makes.
    """
    errors = np.asarray([score.errors for score in scores])  # (kinds, recordings)
    units = np.asarray([score.units for score in scores])
    drawn = np.random.default_rng(0).integers(errors.shape[1], size=(draws, errors.shape[1]))
    wrong = np.maximum(0.5, errors[:, drawn].sum(2))  # (kinds, draws)
    moved = np.log(wrong / np.maximum(1, units[:, drawn].sum(2)))
    moved -= np.asarray([[score.log_rate] for score in scores])
    return float(np.percentile(moved.max(0) - moved.min(0), CERTAINTY))


def pooled_deviation(groups: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation within groups around their own means; None without two of a group."""
    degrees = sum(len(group) - 1 for group in groups)
    if degrees == 0:
        return None
    squares = sum((x - statistics.fmean(group)) ** 2 for group in groups for x in group)
    return math.sqrt(squares / degrees)
