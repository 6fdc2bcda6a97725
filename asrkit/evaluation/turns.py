"""Ends of turns: how long a speaker waits for the final text, and how often a turn is cut early."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asrkit.audio import SAMPLE_RATE
from asrkit.evaluation.tables import table
from asrkit.runtime import Recognizer

PACKET = SAMPLE_RATE // 50  # samples of a packet, 20 ms


class Turn(NamedTuple):
    """The end of one turn of a speaker, which is one recording.

    `seconds` is the time from the end of speech until the audio has arrived which ends the segment
    of the last word. Computing time is not counted.
    """

    early: bool  # a segment ended before the end of speech
    seconds: float
    open: bool  # only the end of the recording ended the segment


class TurnSummary(NamedTuple):
    """The turns of a corpus: shares from 0 to 1, and times to the final text in milliseconds."""

    turns: int
    early: float
    open: float
    median_ms: float
    p95_ms: float


def turn_of(recognizer: Recognizer, samples: np.ndarray, end_of_speech: float) -> Turn:
    """Stream a recording in packets of 20 ms, and return when its turn ends.

    Args:
        recognizer: recogniser with an endpointer.
        samples: (n,) at 16 kHz, with silence after the speech.
        end_of_speech: end of the last word in seconds.
    """
    session, found = recognizer.start(), list[tuple[float, float]]()
    for start in range(0, len(samples), PACKET):
        segments = session.accept(samples[start : start + PACKET]).segments
        arrived = min(len(samples), start + PACKET) / SAMPLE_RATE
        found += [(segment.end, arrived) for segment in segments[len(found) :]]
    return turn_from(found, end_of_speech, len(samples) / SAMPLE_RATE)


def turn_from(found: Sequence[tuple[float, float]], end_of_speech: float, last: float) -> Turn:
    """Return the end of a turn.

    Args:
        found: end of each segment that ended during the recording, and time at which it was known.
        end_of_speech: end of the last word in seconds.
        last: time at which the end of the recording ends the last segment.
    """
    after = [known for end, known in found if end >= end_of_speech]
    return Turn(len(after) < len(found), (after or [last])[0] - end_of_speech, not after)


def summarized(turns: Sequence[Turn]) -> TurnSummary | None:
    """Summarise the turns of a corpus; None without turns."""
    if not turns:
        return None
    median, p95 = (float(1000 * t) for t in np.percentile([t.seconds for t in turns], [50, 95]))
    early, open_ = (float(np.mean([getattr(t, name) for t in turns])) for name in ("early", "open"))
    return TurnSummary(len(turns), early, open_, median, p95)


def turns_table(found: dict[str, TurnSummary | None]) -> str:
    """Return a table with a line for each recogniser."""
    titles = ("chunk", "turns", "cut early", "to final ms", "95 %", "open")
    rows = []
    for name, turns in found.items():
        cells = ["–"] * 5
        if turns is not None:
            number, early, left, median, p95 = turns
            cells = [f"{number}", f"{100 * early:.1f} %", f"{median:.0f}", f"{p95:.0f}"]
            cells.append(f"{100 * left:.1f} %")
        rows.append([name, *cells])
    return table(titles, rows)
