"""Confidences of words against a case worked out by hand."""

import numpy as np
import pytest

from asrkit.evaluation.calibration import calibration, calibration_error
from asrkit.runtime import Word


def test_calibration_of_three_right_words_of_four_is_as_worked_out() -> None:
    words = [Word("a", 0.1, 1.0, 0.95), Word("x", 1.0, 2.0, 0.05), Word("c", 1.7, 3.2, 0.95)]
    found = calibration([(words, ["a", "b", "c"]), ([Word("d", 5.0, 6.0, 0.95)], ["d"])])
    assert found == pytest.approx(0.05)
    assert calibration([([Word("d", 5.0, 6.0, 0.75)], ["e"])]) == 0.75
    assert calibration([]) == 0.0


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
