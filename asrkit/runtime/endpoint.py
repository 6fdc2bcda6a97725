"""Endpoints: a stream is divided into segments at pauses."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from asrkit.errors import UserError, checked_whole, shown

PAUSE_MS = 1000  # default length of a pause that ends a segment
BREATH_MS = 200  # length of a pause that ends a segment of `max_segment_ms`


class Eagerness(NamedTuple):
    """The condition for the end of a turn."""

    probability: float  # smallest probability that the pause has the label of `text.end_of_turn`
    pause_ms: int  # shortest pause


EAGERNESS = {
    "low": Eagerness(0.98, 240),
    "medium": Eagerness(0.9, 240),
    "high": Eagerness(0.6, 160),
}


class EndpointState(NamedTuple):
    frames: int  # number of frames of the open segment so far
    pause: int  # number of quiet frames at its end
    spoken: bool  # whether it has a frame that is not quiet
    goes_on: float = 1.0  # probability that the pause does not have the label of ends of turns


class Endpointer:
    """Ends a segment when a pause after speech has lasted long enough, or at the end of a turn.

    Each step receives a state and returns the next: endpoints do not depend on how many frames come
    at once. Times are converted to frames of the network in use.

    Args:
        pause_ms: length of a pause that ends a segment. None: only `max_segment_ms` ends it.
        max_segment_ms: length from which a segment ends at its next pause of 200 ms, so that no
            word is cut. None: no limit.
        vad: count a pause as quiet only where silero-vad detects no speech either.
        end_of_turn: also end a segment at a shorter pause in which the network writes its label for
            ends of turns: low, medium or high eagerness. Needs a model with such a label.

    Raises:
        UserError: for a time out of range, an unknown eagerness, or a `vad` that is neither True
            nor False.
    """

    def __init__(
        self,
        pause_ms: int | None = PAUSE_MS,
        max_segment_ms: int | None = None,
        vad: bool = False,
        end_of_turn: str | None = None,
    ) -> None:
        self.pause_ms = None
        if end_of_turn is not None and end_of_turn not in EAGERNESS:
            raise UserError(
                f"end_of_turn must be {', '.join(EAGERNESS)} or None, got {shown(end_of_turn)}"
            )
        self.end_of_turn = end_of_turn
        if pause_ms is not None or (max_segment_ms is None and end_of_turn is None):
            self.pause_ms = checked_whole("pause_ms", pause_ms)
        self.max_segment_ms = None
        if max_segment_ms is not None:
            self.max_segment_ms = checked_whole("max_segment_ms", max_segment_ms)
        if not isinstance(vad, bool):
            raise UserError(f"vad must be True or False, got {shown(vad)}")
        self.vad = vad

    @property
    def options(self) -> dict[str, Any]:
        """The arguments."""
        return dict(vars(self))

    def changed(self, **options: Any) -> "Endpointer | None":
        """Return an endpointer with other options; None if nothing would end a segment."""
        options = vars(self) | options
        ends = ("pause_ms", "max_segment_ms", "end_of_turn")
        return None if all(options[name] is None for name in ends) else Endpointer(**options)

    def start(self) -> EndpointState:
        """Return the state of a stream that has not started."""
        return EndpointState(0, 0, False)

    def step(
        self,
        state: EndpointState,
        quiet: Sequence[bool],
        frame_ms: int,
        ends: Sequence[float] = (),
    ) -> tuple[EndpointState, list[int]]:
        """Return the state after more frames, and the number of them up to each endpoint.

        Args:
            state: state before these frames.
            quiet: (E,), True for frames without speech.
            frame_ms: milliseconds of a frame; times become whole frames, at least one.
            ends: (E,), probability that a frame has the label of ends of turns; () for none. Only
                read with `end_of_turn`.
        """
        needed, most, breath, short = self._lengths(frame_ms)
        eager = EAGERNESS.get(self.end_of_turn or "")
        doubt = 0.0 if eager is None else 1.0 - eager.probability
        count, pause, spoken, goes_on = state
        cuts = []
        for i, silent in enumerate(quiet):
            count += 1
            pause = pause + 1 if silent else 0
            spoken = spoken or not silent
            goes_on = (goes_on if silent else 1.0) * (1.0 - (ends[i] if eager and ends else 0.0))
            enough = needed if count < most else breath
            if goes_on <= doubt:
                enough = min(enough, short)
            if spoken and pause >= enough:
                cuts.append(i + 1)
                count, pause, spoken, goes_on = self.start()
        return EndpointState(count, pause, spoken, goes_on), cuts

    def may_end(self, state: EndpointState, frames: int, frame_ms: int) -> bool:
        """Return whether a segment could end within the next frames."""
        needed, most, breath, short = self._lengths(frame_ms)
        if state.frames + frames >= most:
            needed = breath
        return state.pause + frames >= min(needed, short)

    def _lengths(self, frame_ms: int) -> tuple[float, float, float, float]:
        """Return the pause, the segment, the pause in a long segment and at ends of turns."""
        eager = EAGERNESS.get(self.end_of_turn or "")
        times = self.pause_ms, self.max_segment_ms, BREATH_MS, eager and eager.pause_ms
        needed, most, breath, short = (
            math.inf if time is None else frames_of(time, frame_ms) for time in times
        )
        return needed, most, min(needed, breath), short


def frames_of(milliseconds: int, frame_ms: int) -> int:
    """Return a time in whole frames, at least one; halves are rounded up."""
    return max(1, (milliseconds + frame_ms // 2) // frame_ms)
