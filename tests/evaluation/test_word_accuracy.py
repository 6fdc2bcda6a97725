"""Times and confidences of words against a case worked out by hand."""

import numpy as np
import pytest

from asrkit.evaluation.word_accuracy import calibration_error, word_accuracy
from asrkit.runtime import Word


def test_accuracy_of_three_right_words_of_four_is_as_worked_out() -> None:
    """Of four words three are right; those of the second utterance could not be aligned."""
    reference = [Word("a", 0.0, 1.0, 1.0), Word("b", 1.0, 2.0, 1.0), Word("c", 2.0, 3.0, 1.0)]
    words = [Word("a", 0.1, 1.0, 0.95), Word("x", 1.0, 2.0, 0.05), Word("c", 1.7, 3.2, 0.95)]
    found = word_accuracy(
        [(words, ["a", "b", "c"], reference), ([Word("d", 5.0, 6.0, 0.95)], ["d"], None)]
    )
    assert found.calibration_error == pytest.approx(0.05)
    assert found.start_ms == (200.0, 280.0)
    assert found.end_ms == (100.0, 180.0)


def test_accuracy_without_a_right_word_has_no_times() -> None:
    found = word_accuracy([([Word("d", 5.0, 6.0, 0.75)], ["e"], [Word("e", 5.0, 6.0, 1.0)])])
    assert found == (0.75, None, None)
    assert word_accuracy([]) == (0.0, None, None)


def test_calibration_error_of_two_bins_is_as_worked_out() -> None:
    """Two bins: 0.2 and 0.4 of which one is right, 0.9 and 1.0 and 0.8 of which two are."""
    confidences, right = [0.2, 0.9, 0.4, 1.0, 0.8], [False, True, True, False, True]
    expected = 2 / 5 * abs(0.3 - 1 / 2) + 3 / 5 * abs(0.9 - 2 / 3)
    assert calibration_error(confidences, right, bins=2) == pytest.approx(expected)
    assert calibration_error([1.0, 0.0], [True, False]) == 0.0
    assert calibration_error([1.0, 0.0], [False, True]) == 1.0


def test_confidences_that_are_the_share_of_right_words_are_calibrated() -> None:
    """And is not when its confidences are raised."""
    draw = np.random.default_rng(0)
    confidences = draw.random(100_000)
    right = draw.random(100_000) < confidences
    assert calibration_error(confidences, right) < 0.01
    assert calibration_error(confidences**0.5, right) > 0.1
