"""Accuracy of the times and the confidences of words."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from asrkit.evaluation.wer import agreeing
from asrkit.runtime.words import Word


class WordAccuracy(NamedTuple):
    """The accuracy of the words of a corpus; distances are those of correct words, None without."""

    calibration_error: float  # error of the confidences of all words, 0 to 1
    start_ms: tuple[float, float] | None  # distance from forced alignment: median, 90 %
    end_ms: tuple[float, float] | None


def word_accuracy(
    utterances: Iterable[tuple[Sequence[Word], Sequence[str], Sequence[Word] | None]],
) -> WordAccuracy:
    """Measure the accuracy of the confidences and the times of words.

    Args:
        utterances: tuples of the recognised units, the reference's units, and the
            reference's units with times by forced alignment, or None.
    """
    confidences: list[float] = []
    right: list[bool] = []
    starts: list[float] = []
    ends: list[float] = []
    for words, reference, alignment in utterances:
        pairs = agreeing(reference, [word.text for word in words])
        correct = {j for _, j in pairs}
        confidences += [word.confidence for word in words]
        right += [j in correct for j in range(len(words))]
        if alignment and len(alignment) == len(reference):
            starts += [abs(alignment[i].start - words[j].start) for i, j in pairs]
            ends += [abs(alignment[i].end - words[j].end) for i, j in pairs]
    return WordAccuracy(
        calibration_error(confidences, right), median_and_p90(starts), median_and_p90(ends)
    )


def median_and_p90(distances: list[float]) -> tuple[float, float] | None:
    """Return the median and the 90 % percentile of seconds, in milliseconds; None without any."""
    if not distances:
        return None
    median, p90 = np.percentile(distances, [50, 90]) * 1000
    return round(float(median), 1), round(float(p90), 1)


def calibration_error(confidences: Sequence[float], right: Sequence[bool], bins: int = 10) -> float:
    """Return the expected calibration error (Guo et al. 2017, On Calibration of Modern Neural
    Networks).

    It is the distance between the mean confidence and the share of correct words, in bins of equal
    width, weighted by the number of words in each bin. 0 is perfect. The result is 0 without words.

    Args:
        bins: number of bins; the paper's figures use 15.
    """
    if not len(confidences):
        return 0.0
    sure, correct = np.asarray(confidences, dtype=float), np.asarray(right, dtype=float)
    places = np.minimum((sure * bins).astype(int), bins - 1)
    gaps = np.bincount(places, sure - correct, minlength=bins)
    return float(np.abs(gaps).sum() / len(sure))
