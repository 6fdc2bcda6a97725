"""Calibration of the confidences of words."""

from collections.abc import Iterable, Sequence

import numpy as np

from asrkit.evaluation.wer import agreeing
from asrkit.runtime.words import Word


def calibration(utterances: Iterable[tuple[Sequence[Word], Sequence[str]]]) -> float:
    """Return the calibration error of the confidences of recognised units.

    Args:
        utterances: pairs of the recognised units and the reference's units.
    """
    confidences: list[float] = []
    right: list[bool] = []
    for words, reference in utterances:
        correct = {j for _, j in agreeing(reference, [word.text for word in words])}
        confidences += [word.confidence for word in words]
        right += [j in correct for j in range(len(words))]
    return calibration_error(confidences, right)


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
