"""Times and confidences of words against a case worked out by hand."""

import pytest

from asrkit.evaluation.word_accuracy import word_accuracy
from asrkit.runtime import Word


def test_known() -> None:
    """Of four words three are right; those of the second utterance could not be aligned."""
    reference = [Word("a", 0.0, 1.0, 1.0), Word("b", 1.0, 2.0, 1.0), Word("c", 2.0, 3.0, 1.0)]
    words = [Word("a", 0.1, 1.0, 0.95), Word("x", 1.0, 2.0, 0.05), Word("c", 1.7, 3.2, 0.95)]
    found = word_accuracy(
        [(words, ["a", "b", "c"], reference), ([Word("d", 5.0, 6.0, 0.95)], ["d"], None)]
    )
    assert found.calibration_error == pytest.approx(0.05)
    assert found.start_ms == (200.0, 280.0)
    assert found.end_ms == (100.0, 180.0)


def test_nothing_right() -> None:
    found = word_accuracy([([Word("d", 5.0, 6.0, 0.75)], ["e"], [Word("e", 5.0, 6.0, 1.0)])])
    assert found == (0.75, None, None)
    assert word_accuracy([]) == (0.0, None, None)
