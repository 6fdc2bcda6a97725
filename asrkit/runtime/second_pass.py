"""The second pass: the frames of a segment that has ended, recognised again in a larger context.

A stream is divided into spans where pauses are, each in the middle of its pause. The network sees
a span from LEFT_MS before it up to the frame at which the pause was long enough, so that no word
lies at an edge of what it sees; the text is that of the frames in between. Measured on an4 with
pauses of 300 and 600 ms: spans that end where the pause was long enough, without the second before
them, make 131 and 41 errors in 600 words, these 35 and 30, and whole recordings 30.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from torch import Tensor

from asrkit.runtime.endpoint import frames_of
from asrkit.runtime.engine import Engine
from asrkit.search import Search

LEFT_MS = 1000  # that the network sees before a span
LONGEST_MS = 30_000  # of a span: bounds memory, and the time that others wait for it


class SecondPass(NamedTuple):
    """What recognises a segment once more when it has ended."""

    engine: Engine  # of the same network, in a larger context
    search: Search


class Span(NamedTuple):
    """Encoder frames of a stream, counted from its start, to recognise once more."""

    first: int  # what the network sees begins here,
    start: int  # its text here,
    end: int  # which ends before this frame,
    last: int  # and what it sees before this one
    ends: bool  # whether a segment ends with the span

    def of(self, frames: Tensor) -> Tensor:
        """Those of its text, of all that the network made of it: (first … last, V) -> (E, V)."""
        return frames[self.start - self.first : self.end - self.first]


class SpansValue(NamedTuple):
    """Where the open span is."""

    start: int
    quiet: tuple[bool, ...]
    open: bool


class Spans:
    """Divides a stream into spans. They do not depend on how many frames come at once.

    Args:
        frame_ms: milliseconds of an encoder frame.

    Attributes:
        first: the first frame that the next span needs.
    """

    def __init__(self, frame_ms: int) -> None:
        self._left, self._longest = frames_of(LEFT_MS, frame_ms), frames_of(LONGEST_MS, frame_ms)
        self._start = 0  # of the open span
        self._quiet: list[bool] = []  # of its frames
        self._open = False  # whether its segment has spans before it

    @property
    def first(self) -> int:
        return max(0, self._start - self._left)

    def append(self, quiet: Sequence[bool]) -> list[Span]:
        """Append frames; return the spans of an open segment that is too long for one.

        They end in the middle of the longest pause in their second half.

        Args:
            quiet: (E,) whether nothing is said in a frame.
        """
        self._quiet += quiet
        found = []
        while len(self._quiet) > self._longest:
            size = middle_of_pause(self._quiet, self._longest, self._left)
            found.append(self._span(size, self._longest, ends=False))
        return found

    def end_segment(self) -> Span:
        """The last span of a segment that ends with a pause here."""
        pause = next((i for i, each in enumerate(reversed(self._quiet)) if not each), 0)
        return self._span(len(self._quiet) - pause // 2, len(self._quiet), ends=True)

    def finish(self) -> Span | None:
        """Return the last span of the stream; None if no frame is left."""
        size = len(self._quiet)
        return self._span(size, size, ends=True) if size or self._open else None

    @property
    def value(self) -> SpansValue:
        return SpansValue(self._start, tuple(self._quiet), self._open)

    def restore(self, value: SpansValue, frame: int) -> None:
        """Go on from a value, of a stream of so many frames.

        Raises:
            ValueError: if it cannot be one.
        """
        if not (0 <= value.start <= frame and len(value.quiet) <= self._longest):
            raise ValueError("the open span does not lie in the stream")
        self._start, self._quiet, self._open = value.start, [*value.quiet], value.open

    def _span(self, size: int, seen: int, ends: bool) -> Span:
        """One of so many frames, of which the network sees more."""
        start = self._start
        span = Span(self.first, start, start + size, start + seen, ends)
        del self._quiet[:size]
        self._start, self._open = start + size, not ends
        return span


def middle_of_pause(quiet: Sequence[bool], longest: int, left: int) -> int:
    """Frames up to the middle of the longest pause in the second half of `longest` frames.

    Args:
        quiet: whether nothing is said in each frame.
        longest: number of frames that are looked at.
        left: frames at their end that a span never has, so that the network sees what follows it.
            Without a pause the span ends before these.
    """
    half, most = longest // 2, longest - left
    pause = longest_pause(quiet[half:most])
    return most if pause is None else half + (pause.start + pause.stop + 1) // 2


def longest_pause(quiet: Sequence[bool]) -> range | None:
    """The longest run of quiet frames, the last of several; None if there is none."""
    runs, start = [], 0
    for is_quiet, run in groupby(quiet):
        size = len(list(run))
        if is_quiet:
            runs.append(range(start, start + size))
        start += size
    return max(reversed(runs), key=len, default=None)
