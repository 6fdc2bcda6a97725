"""How right the times and the confidences of words are."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from asrkit.evaluation.calibration import calibration_error
from asrkit.evaluation.delays import agreeing
from asrkit.runtime.word import Word


class Heard(NamedTuple):
    """The words of an utterance, as they were heard and as they were said."""

    words: Sequence[Word]
    reference: Sequence[str]
    said: Sequence[Word]  # by forced alignment; none where there is none


class WordAccuracy(NamedTuple):
    """Distances are those of words that are right; None where there are none."""

    calibration_error: float  # of the confidences of all words, 0 to 1
    start_ms: tuple[float, float] | None  # distance from forced alignment: median, 90 %
    end_ms: tuple[float, float] | None


def word_accuracy(utterances: Iterable[Heard]) -> WordAccuracy:
    confidences: list[float] = []
    right: list[bool] = []
    starts: list[float] = []
    ends: list[float] = []
    for words, reference, said in utterances:
        pairs = agreeing(tuple(reference), tuple(word.text for word in words))
        correct = {j for _, j in pairs}
        confidences += [word.confidence for word in words]
        right += [j in correct for j in range(len(words))]
        if said:
            starts += [abs(said[i].start - words[j].start) for i, j in pairs]
            ends += [abs(said[i].end - words[j].end) for i, j in pairs]
    return WordAccuracy(calibration_error(confidences, right), spread(starts), spread(ends))


def spread(distances: list[float]) -> tuple[float, float] | None:
    """Median and 90 % of distances in seconds, in milliseconds."""
    if not distances:
        return None
    median, p90 = np.percentile(distances, [50, 90]) * 1000
    return round(float(median), 1), round(float(p90), 1)
