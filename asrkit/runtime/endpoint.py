"""Where a stream is cut into segments: at pauses."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from asrkit.errors import UserError, shown, whole_number

PAUSE_MS = 1000  # the default everywhere that a pause ends a segment
BREATH_MS = 200  # a pause that is enough once a segment has its longest length


class EndpointState(NamedTuple):
    frames: int  # of the open segment so far
    pause: int  # quiet frames at its end
    spoken: bool  # whether there was one that is not


class Endpointer:
    """Ends a segment when a pause has lasted long enough after something was said.

    Past in, past out: where a stream is cut does not depend on how many frames come at once. Times
    become frames of whatever network it is used with.

    Args:
        pause_ms: a pause this long ends a segment. None, with a `max_segment_ms`: only that does.
        min_segment_ms: shorter segments go on.
        max_segment_ms: a segment this long ends at its next breath, a pause of 200 ms, so that no
            word is cut. None: never.
        reset_encoder: begin every segment as a new stream. Otherwise the network goes on, and hears
            each word after what was said before it, as in one pass.
        vad: a pause is quiet only where silero-vad hears no speech either.

    Raises:
        UserError: for a time out of range, or what is neither True nor False.
    """

    def __init__(
        self,
        pause_ms: int | None = PAUSE_MS,
        min_segment_ms: int = 0,
        max_segment_ms: int | None = None,
        reset_encoder: bool = False,
        vad: bool = False,
    ) -> None:
        self.pause_ms = None
        if pause_ms is not None or max_segment_ms is None:
            self.pause_ms = checked("pause_ms", pause_ms, 1)
        self.min_segment_ms = checked("min_segment_ms", min_segment_ms, 0)
        self.max_segment_ms = None
        if max_segment_ms is not None:
            self.max_segment_ms = checked("max_segment_ms", max_segment_ms, 1)
        for name, value in (("reset_encoder", reset_encoder), ("vad", vad)):
            if not isinstance(value, bool):
                raise UserError(f"{name} must be True or False, got {shown(value)}")
        self.reset_encoder, self.vad = reset_encoder, vad

    def with_pause(self, pause_ms: int | None) -> "Endpointer | None":
        """An endpointer with another pause and otherwise these options.

        Args:
            pause_ms: length of the pause. None: no pause ends a segment; without a
                `max_segment_ms` nothing does, and there is no endpointer.
        """
        if pause_ms is None and self.max_segment_ms is None:
            return None
        return Endpointer(**vars(self) | {"pause_ms": pause_ms})

    def start(self) -> EndpointState:
        """The state of a stream that has not begun."""
        return EndpointState(0, 0, False)

    def step(
        self, state: EndpointState, quiet: Sequence[bool], frame_ms: int
    ) -> tuple[EndpointState, list[int]]:
        """The state after more frames, and how many of them there are up to each endpoint.

        Args:
            state: the one before.
            quiet: (E,), whether nothing is said in a frame.
            frame_ms: milliseconds of a frame; times become whole frames, at least one.
        """
        least, needed, most = frames_of(self.min_segment_ms, frame_ms), math.inf, math.inf
        if self.pause_ms is not None:
            needed = frames_of(self.pause_ms, frame_ms)
        if self.max_segment_ms is not None:
            most = frames_of(self.max_segment_ms, frame_ms)
        breath = min(needed, frames_of(BREATH_MS, frame_ms))
        count, pause, spoken = state
        cuts = []
        for i, silent in enumerate(quiet):
            count += 1
            pause = pause + 1 if silent else 0
            spoken = spoken or not silent
            if spoken and count >= least and pause >= (needed if count < most else breath):
                cuts.append(i + 1)
                count, pause, spoken = self.start()
        return EndpointState(count, pause, spoken), cuts


def frames_of(milliseconds: int, frame_ms: int) -> int:
    """Whole frames of a time, at least one; halves go up."""
    return max(1, (milliseconds + frame_ms // 2) // frame_ms)


def checked(name: str, milliseconds: int | None, lowest: int) -> int:
    """A time that is a whole number, at least `lowest`.

    Raises:
        UserError: if it is not.
    """
    whole = whole_number(milliseconds, lowest)
    if whole is None:
        raise UserError(
            f"{name} must be {lowest} or more, a whole number, got {shown(milliseconds)}"
        )
    return whole
