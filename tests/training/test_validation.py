"""From utterances to a corpus: scores of known outcomes."""

import pytest

from asrkit.data.manifest import ManifestError
from asrkit.search.align import Delay
from asrkit.text import ErrorRate
from asrkit.training.validation import Outcome, Score, rates, scores


def test_scores() -> None:
    """The second utterance could not be aligned: its words count, its delays do not."""
    outcomes = [
        Outcome("1", 1.0, "a b", {"full": "a b", "40 ms": "a"},
                {"full": ([5, 3], [3]), "40 ms": ([1], [])}, {}),
        Outcome("2", 1.0, "c", {"full": "d", "40 ms": "c"}, {}, {}),
    ]  # fmt: skip
    one = ErrorRate(1, 0, 0, 1)
    assert scores(outcomes) == {
        "full": Score(
            ErrorRate(1, 0, 0, 3),
            ErrorRate(1, 0, 0, 4),
            Delay(160.0, 160.0, pytest.approx(192.0), 120.0),
            {"1": ErrorRate(0, 0, 0, 2), "2": one},
        ),
        "40 ms": Score(
            ErrorRate(0, 1, 0, 3),
            ErrorRate(0, 2, 0, 4),
            Delay(40.0, 40.0, 40.0, None),
            {"1": ErrorRate(0, 1, 0, 2), "2": ErrorRate(0, 0, 0, 1)},
        ),
    }
    assert scores(outcomes[1:])["full"] == Score(one, one, None, {"2": one})


def test_without_spaces_characters_count() -> None:
    """One of four is wrong; of the words, which there are none of, all."""
    found = scores([Outcome("1", 1.0, "而对楼市", {"full": "而对楼是"}, {}, {})])
    assert rates(found) == {"wer": {"full": 100.0}, "cer": {"full": 25.0}}
    assert str(found["full"]).endswith(", CER 25.00 %")


def test_scores_of_nothing() -> None:
    with pytest.raises(ManifestError, match="no utterance"):
        scores([])
