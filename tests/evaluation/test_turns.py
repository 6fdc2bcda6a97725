"""Ends of turns: waiting times and early cuts, on examples that are counted by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from asrkit.audio import SAMPLE_RATE
from asrkit.evaluation.turns import Turn, summarized, turn_from, turn_of, turns_table


@pytest.mark.parametrize(
    ("ends", "turn"),
    [
        ([(2.6, 3.2)], Turn(False, 1.2, False)),
        ([(1.0, 1.5), (2.6, 3.2)], Turn(True, 1.2, False)),  # in the pause before the last word
        ([(1.5, 2.4)], Turn(True, 3.0, True)),  # known after the end of speech, but cut before it
        ([], Turn(False, 3.0, True)),
        ([(2.6, 3.2), (3.5, 4.0)], Turn(False, 1.2, False)),  # noise after the turn
    ],
)
def test_a_turn_ends_with_the_segment_of_its_last_word(
    ends: list[tuple[float, float]], turn: Turn
) -> None:
    """The last word ends at 2 s, the recording at 5 s."""
    found = turn_from(ends, 2.0, 5.0)
    assert found == turn._replace(seconds=pytest.approx(turn.seconds))


def test_summary_and_table() -> None:
    turns = [Turn(False, 0.2, False), Turn(True, 0.4, False), Turn(False, 2.0, True)]
    summary = summarized(turns)
    assert summary is not None
    assert summary == pytest.approx((3, 1 / 3, 1 / 3, 400, 1840))
    assert summarized([]) is None
    first, second = turns_table({"320 ms": summary, "full": None}).splitlines()[1:]
    assert first.split() == ["320", "ms", "3", "33.3", "%", "400", "1840", "33.3", "%"]
    assert second.split() == ["full"] + 5 * ["–"]


def test_the_time_is_that_of_the_packet_with_the_decision() -> None:
    """A recogniser that knows after 1.23 s that a segment has ended at 0.9 s."""

    class Session:
        seconds = 0.0

        def accept(self, samples: np.ndarray) -> SimpleNamespace:
            self.seconds += len(samples) / SAMPLE_RATE
            known = self.seconds >= 1.23
            return SimpleNamespace(segments=[SimpleNamespace(end=0.9)] if known else [])

    recognizer = SimpleNamespace(start=Session)
    found = turn_of(recognizer, np.zeros(2 * SAMPLE_RATE), 0.8)  # type: ignore[arg-type]
    assert found == Turn(False, pytest.approx(1.24 - 0.8), False)
