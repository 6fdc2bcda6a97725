"""Alignments of units, and error rates of a corpus by units and by characters, with jiwer."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from asrkit.text.graphemes import is_character, units

UNITS = {"WER": "word", "MER": "unit", "CER": "character"}  # by the name of the rate


def rate_shown(rate: float | None) -> str:
    """Format a rate in percent for tables and logs."""
    return "no words" if rate is None else f"{rate:.2f} %"


class ErrorRate(NamedTuple):
    """Edit counts of a corpus; `rate` is their sum over the reference's units."""

    substitutions: int
    deletions: int
    insertions: int
    reference_units: int
    characters: int = 0  # units of the reference that are not words, see `graphemes.is_character`

    @property
    def name(self) -> str:
        """The name of the rate by its units: words, characters, or both (mixed error rate)."""
        if not self.characters:
            return "WER"
        return "CER" if self.characters == self.reference_units else "MER"

    @property
    def unit(self) -> str:
        """The name of a unit."""
        return UNITS[self.name]

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float | None:
        """The error rate in percent; None without reference units."""
        return 100.0 * self.errors / self.reference_units if self.reference_units else None

    @property
    def percent(self) -> str:
        """The rate as short text for tables."""
        return rate_shown(self.rate)

    def __str__(self) -> str:
        if self.rate is None:
            return f"no reference words ({self.insertions} ins)"
        return (
            f"{self.percent} ({self.errors} of {self.reference_units}: "
            f"{self.substitutions} sub, {self.deletions} del, {self.insertions} ins)"
        )


def without_errors(reference: Sequence[str]) -> ErrorRate:
    """Return the counts of a reference's units, with no errors."""
    return ErrorRate(0, 0, 0, len(reference), sum(map(is_character, reference)))


def wer(references: Sequence[str], hypotheses: Sequence[str]) -> ErrorRate:
    """Return the error rate by units over pairs of references and hypotheses."""
    import jiwer

    found, texts = ([" ".join(units(text)) for text in each] for each in (references, hypotheses))
    rate = _total(jiwer.process_words, found, texts, lambda text: len(text.split()))
    return rate._replace(characters=without_errors(" ".join(found).split()).characters)


def cer(references: Sequence[str], hypotheses: Sequence[str]) -> ErrorRate:
    """Return the character error rate, including spaces."""
    import jiwer

    rate = _total(jiwer.process_characters, references, hypotheses, len)
    return rate._replace(characters=rate.reference_units)


def total(rates: Iterable[ErrorRate]) -> ErrorRate:
    """Return the sum of the counts of several texts."""
    return ErrorRate(*map(sum, zip(ErrorRate(0, 0, 0, 0), *rates, strict=True)))


def _total(process, references, hypotheses, count) -> ErrorRate:  # type: ignore[no-untyped-def]
    if len(references) != len(hypotheses):
        raise ValueError(f"{len(references)} references but {len(hypotheses)} hypotheses")
    # jiwer rejects empty references: count all their hypotheses' units as inserted.
    pairs = [(r, h) for r, h in zip(references, hypotheses, strict=True) if count(r)]
    inserted = sum(count(h) for r, h in zip(references, hypotheses, strict=True) if not count(r))
    if not pairs:
        return ErrorRate(0, 0, inserted, 0)
    result = process([r for r, _ in pairs], [h for _, h in pairs])
    size = sum(count(r) for r, _ in pairs)
    return ErrorRate(result.substitutions, result.deletions, result.insertions + inserted, size)


def word_alignment(
    reference: Sequence[object], hypothesis: Sequence[object]
) -> list[tuple[int | None, int | None]]:
    """Return the position pairs of an alignment with the fewest errors, in order.

    The second position of a deleted unit is None, as is the first position of an inserted unit.

    Args:
        reference: units, or tokens.
        hypothesis: units, or tokens.
    """
    import jiwer

    if not reference:
        return [(None, position) for position in range(len(hypothesis))]
    left, right = (" ".join(map(str, words)) for words in (reference, hypothesis))
    pairs: list[tuple[int | None, int | None]] = []
    for part in jiwer.process_words(left, right).alignments[0]:
        before = range(part.ref_start_idx, part.ref_end_idx)
        pairs += itertools.zip_longest(before, range(part.hyp_start_idx, part.hyp_end_idx))
    return pairs


def agreeing(reference: Sequence[object], hypothesis: Sequence[object]) -> list[tuple[int, int]]:
    """Return the position pairs of equal units, or tokens, in this alignment."""
    return [
        (i, j)
        for i, j in word_alignment(reference, hypothesis)
        if i is not None and j is not None and reference[i] == hypothesis[j]
    ]


class Interval(NamedTuple):
    low: float
    high: float


def interval_shown(interval: Interval | None) -> str:
    """Format an interval for tables."""
    return "–" if interval is None else f"{interval.low:.1f}–{interval.high:.1f}"


def bootstrap(rates: Sequence[ErrorRate], samples: int = 10_000) -> Interval | None:
    """Return the 95 % interval of the error rate in percent; None without reference units.

    The interval consists of percentiles over resampled utterances. Utterances are drawn instead of
    words, because the errors within an utterance are correlated (Bisani and Ney 2004, Bootstrap
    estimates for confidence intervals in ASR performance evaluation). The order of the utterances
    makes no difference.
    """
    if not any(rate.reference_units for rate in rates):
        return None
    draw = np.random.default_rng(0)
    counts = np.array(sorted((rate.errors, rate.reference_units) for rate in rates))
    found = []
    for _ in range(samples // 100):  # a hundred at a time: fast, with little memory
        drawn = counts[draw.integers(len(counts), size=(100, len(counts)))]  # (100, n, 2)
        wrong, units = drawn.sum(axis=1).T
        found.append(100.0 * wrong / np.maximum(1, units))
    low, high = np.percentile(found, [2.5, 97.5])
    return Interval(float(low), float(high))


class Difference(NamedTuple):
    """The error rate of one training less that of another one, with 95 % intervals."""

    points: float  # in percentage points
    interval: Interval
    percent: float  # relative to the first rate
    percent_interval: Interval

    def __str__(self) -> str:
        (low, high), (least, most) = self.interval, self.percent_interval
        verdict = "fewer errors" if high < 0 else "more errors" if low > 0 else "may be chance"
        return (
            f"{self.points:+.2f} points (95 %: {low:+.2f} to {high:+.2f}), {self.percent:+.1f} % "
            f"({least:+.1f} to {most:+.1f}): {verdict}"
        )


def paired(base: np.ndarray, other: np.ndarray, units: np.ndarray, draws: int = 2000) -> Difference:
    """Return the difference of two trainings on the same utterances.

    The bootstrap draws models of each side and utterances, the same ones for both sides.

    Args:
        base: (models, utterances) errors, a model for each seed.
        other: (models, utterances) errors on the same utterances.
        units: (utterances,) reference units.
    """
    draw = np.random.default_rng(0)
    sums = [[base.mean(0).sum(), other.mean(0).sum(), units.sum()]]  # the first are of all
    for _ in range(draws):
        each = draw.integers(len(units), size=len(units))
        seeds = (side[draw.integers(len(side), size=len(side))] for side in (base, other))
        sums.append([*(side[:, each].mean(0).sum() for side in seeds), units[each].sum()])
    before, after, count = np.array(sums, dtype=float).T
    points = 100.0 * (after - before) / np.maximum(1.0, count)
    percent = 100.0 * (after - before) / np.maximum(0.5, before)
    low, high = np.percentile([points[1:], percent[1:]], [2.5, 97.5], axis=1).tolist()
    within, within_percent = map(Interval, low, high)
    return Difference(float(points[0]), within, float(percent[0]), within_percent)
