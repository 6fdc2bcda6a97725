"""Word and character error rates through jiwer, added up over a corpus."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class ErrorRate(NamedTuple):
    """Edit counts of a corpus; `rate` is their sum over the reference's units."""

    substitutions: int
    deletions: int
    insertions: int
    reference_units: int  # words or characters

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """In percent; references without a unit count one error each unit inserted."""
        return 100.0 * self.errors / max(1, self.reference_units)

    def __str__(self) -> str:
        return (
            f"{self.rate:.2f} % ({self.errors} of {self.reference_units}: "
            f"{self.substitutions} sub, {self.deletions} del, {self.insertions} ins)"
        )


def wer(references: Sequence[str], hypotheses: Sequence[str]) -> ErrorRate:
    """Word error rate of hypotheses against references, pair by pair."""
    import jiwer

    return _total(jiwer.process_words, references, hypotheses, lambda text: len(text.split()))


def cer(references: Sequence[str], hypotheses: Sequence[str]) -> ErrorRate:
    """Character error rate, spaces included."""
    import jiwer

    return _total(jiwer.process_characters, references, hypotheses, len)


def _total(process, references, hypotheses, count) -> ErrorRate:  # type: ignore[no-untyped-def]
    if len(references) != len(hypotheses):
        raise ValueError(f"{len(references)} references but {len(hypotheses)} hypotheses")
    # jiwer has no rate for an empty reference: all of the hypothesis is inserted.
    pairs = [(r, h) for r, h in zip(references, hypotheses, strict=True) if count(r)]
    inserted = sum(count(h) for r, h in zip(references, hypotheses, strict=True) if not count(r))
    if not pairs:
        return ErrorRate(0, 0, inserted, 0)
    result = process([r for r, _ in pairs], [h for _, h in pairs])
    units = sum(count(r) for r, _ in pairs)
    return ErrorRate(result.substitutions, result.deletions, result.insertions + inserted, units)


class Interval(NamedTuple):
    low: float
    high: float


def bootstrap(rates: Sequence[ErrorRate], samples: int = 10_000) -> Interval:
    """95 % interval of the error rate in percent: percentiles over resampled utterances.

    Utterances are drawn and not words, for the errors of an utterance come together (Bisani and
    Ney 2004, Bootstrap estimates for confidence intervals in ASR performance evaluation). The same
    for any order of the utterances.
    """
    draw = np.random.default_rng(0)
    counts = np.array(sorted((rate.errors, rate.reference_units) for rate in rates))
    found = []
    for _ in range(samples // 100):  # a hundred at a time: quick, and little memory
        drawn = counts[draw.integers(len(counts), size=(100, len(counts)))]  # (100, n, 2)
        wrong, units = drawn.sum(axis=1).T
        found.append(100.0 * wrong / np.maximum(1, units))
    low, high = np.percentile(found, [2.5, 97.5])
    return Interval(float(low), float(high))
