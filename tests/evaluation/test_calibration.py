"""Expected calibration error worked out by hand, and of numbers that are what they say."""

import numpy as np
import pytest

from asrkit.evaluation.calibration import calibration_error


def test_known() -> None:
    """Two bins: 0.2 and 0.4 of which one is right, 0.9 and 1.0 and 0.8 of which two are."""
    confidences, right = [0.2, 0.9, 0.4, 1.0, 0.8], [False, True, True, False, True]
    expected = 2 / 5 * abs(0.3 - 1 / 2) + 3 / 5 * abs(0.9 - 2 / 3)
    assert calibration_error(confidences, right, bins=2) == pytest.approx(expected)


def test_extremes() -> None:
    assert calibration_error([1.0, 0.0], [True, False]) == 0.0
    assert calibration_error([1.0, 0.0], [False, True]) == 1.0
    assert calibration_error([], []) == 0.0


def test_what_says_the_truth_is_calibrated() -> None:
    """And is not when its confidences are raised."""
    draw = np.random.default_rng(0)
    confidences = draw.random(100_000)
    right = draw.random(100_000) < confidences
    assert calibration_error(confidences, right) < 0.01
    assert calibration_error(confidences**0.5, right) > 0.1
