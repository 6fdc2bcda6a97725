"""Long audio in parts: windows of full context, and spans of the second pass.

Networks are not trained on audio of more than LONGEST_MS. A part ends in the middle of a pause. The
network sees LEFT_MS before the part, and what follows it up to LONGEST_MS. So no word lies at an
edge of what the network sees. Parts depend only on the samples, not on packets.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from asrkit import audio
from asrkit.backends import Backend
from asrkit.backends.backend import padded
from asrkit.context import FrameRate
from asrkit.runtime.endpoint import frames_of
from asrkit.runtime.engine import Engine, stacked
from asrkit.search import Search

LEFT_MS = 1000  # audio before a part that the network also sees
LONGEST_MS = 30_000  # longest part: bounds memory, and the time that other streams wait

Quiet = Callable[[np.ndarray], Sequence[bool]]  # emissions (E, V) -> whether each frame is a pause


class Divider:
    """Divides long audio at pauses.

    Args:
        frame_ms: milliseconds of an encoder frame.

    Attributes:
        left: most frames that the network sees before a part.
        longest: most frames of a part and of what the network sees after it.
    """

    def __init__(self, frame_ms: int) -> None:
        self.left, self.longest = (frames_of(ms, frame_ms) for ms in (LEFT_MS, LONGEST_MS))

    def first(self, start: int) -> int:
        """Return the first frame that the network sees of a part that begins at `start`."""
        return max(0, start - self.left)

    def size(self, quiet: Sequence[bool]) -> int:
        """Return the number of frames up to the middle of the longest pause in the second half.

        The part never has the last `left` of the `longest` frames, so that the network sees what
        follows it. Without a pause it ends before these frames.

        Args:
            quiet: (E,), True for frames without speech, at least `longest`.
        """
        half, most = self.longest // 2, self.longest - self.left
        pause = longest_pause(quiet[half:most])
        return most if pause is None else half + (pause.start + pause.stop + 1) // 2


def longest_pause(quiet: Sequence[bool]) -> range | None:
    """Return the longest run of quiet frames, the last of equal ones; None without one."""
    runs, start = [], 0
    for is_quiet, run in groupby(quiet):
        size = len(list(run))
        if is_quiet:
            runs.append(range(start, start + size))
        start += size
    return max(reversed(runs), key=len, default=None)


class Windows(Divider):
    """The windows of a stream in full context, one after another.

    Args:
        rate: relation of feature frames to encoder frames.
        quiet: finds the frames without speech.
    """

    def __init__(self, rate: FrameRate, quiet: Quiet) -> None:
        super().__init__(rate.frame_ms)
        self._rate, self._quiet = rate, quiet

    def whole(self, start: int, waiting: int) -> int:
        """Return the feature frames of a window whose text begins at `start`; 0 for the last one.

        Args:
            start: encoder frames of the stream before the text of the window.
            waiting: number of available feature frames, from those before the text on.
        """
        size = start - self.first(start) + self.longest
        if self._rate.num_frames(waiting) <= size:
            return 0
        return self._rate.factor * size + self._rate.lookahead

    def text(self, emissions: np.ndarray, start: int, last: bool) -> np.ndarray:
        """Return the emissions of a window's text from all that it sees: (E, V) -> (E', V)."""
        emissions = emissions[start - self.first(start) :]
        return emissions if last else emissions[: self.size(self._quiet(emissions))]

    def emissions(self, engine: Engine, feats: np.ndarray) -> np.ndarray:
        """Return the head's emissions for a whole recording: (T, F) -> (E, V)."""
        parts, start, last = [], 0, False
        while not last:
            rest = feats[self._rate.factor * self.first(start) :]
            size = self.whole(start, len(rest))
            last = size == 0
            (seen,), _ = engine.step_of([rest[: size or None]], engine.init_state(1))
            parts.append(self.text(seen, start, last))
            start += len(parts[-1])
        return np.concatenate(parts)


def emissions_of(
    engine: Engine, recordings: Sequence[np.ndarray], quiet: Quiet
) -> list[np.ndarray]:
    """Return the head's emissions (E, V) for recordings at 16 kHz: one step, or windows.

    Args:
        engine: network in any context.
        recordings: mono, (n,) float32 in [-1, 1] each.
        quiet: finds the frames without speech, where a window may end.
    """
    spec = engine.spec
    num_samples = np.array([len(samples) for samples in recordings])
    samples = stacked(recordings).astype(spec.dtype)
    feats, lengths = audio.features(engine.frontend, samples, num_samples)

    windows, sizes = Windows(spec.rate, quiet), lengths.tolist()
    if spec.context.full and any(windows.whole(0, size) for size in sizes):
        rows = zip(feats, sizes, strict=True)
        return [windows.emissions(engine, row[:size]) for row, size in rows]
    ahead = spec.rate.factor * spec.context.right  # appended: right context is not returned
    return engine.step(padded(feats, ahead), lengths, engine.init_state(len(feats)))[0]


class SecondPass(NamedTuple):
    """The engine and the search of the second pass, which recognises ended segments again."""

    engine: Engine  # the same network in a larger context
    search: Search


def build_second_pass(backend: Backend, search: Search, first: Engine) -> SecondPass:
    """Return a second pass after `first`, with its frontend.

    Raises:
        ValueError: if the context is not larger than that of the first pass.
    """
    context, name = backend.spec.context, backend.spec.context_name
    if context.chunk_size <= first.spec.context.chunk_size:
        raise ValueError(
            f"second_pass needs a larger context than the first pass, {first.spec.context_name}, "
            f"got {name}"
        )
    if context.right:
        raise ValueError("the second pass has no right context: its right_context must be 0")
    return SecondPass(Engine(backend, first.frontend), search)


class Span(NamedTuple):
    """Encoder frames of a stream, counted from its start, to recognise again."""

    first: int  # first frame that the network sees
    start: int  # first frame of the text
    end: int  # end of the text, exclusive
    last: int  # end of what the network sees, exclusive
    ends: bool  # whether a segment ends with the span

    def of(self, emissions: np.ndarray) -> np.ndarray:
        """Return the emissions of the text from those of first … last: (E, V) -> (E', V)."""
        return emissions[self.start - self.first : self.end - self.first]


class SpansValue(NamedTuple):
    """The stored value of `Spans`: the place of the open span."""

    start: int = 0  # first frame of the open span
    quiet: tuple[bool, ...] = ()  # flags of its frames
    open: bool = False  # whether its segment has earlier spans


class Spans(Divider):
    """The spans of a stream in two passes, which do not depend on how many frames come at once.

    Args:
        frame_ms: milliseconds of an encoder frame.
    """

    def __init__(self, frame_ms: int) -> None:
        super().__init__(frame_ms)
        self.value = SpansValue()

    @property
    def first_needed(self) -> int:
        """First frame that the next span needs."""
        return self.first(self.value.start)

    def has_room(self, frames: int) -> bool:
        """Return whether the open span can hold more frames."""
        return len(self.value.quiet) + frames <= self.longest

    def append(self, quiet: Sequence[bool]) -> list[Span]:
        """Append frames; return spans of the open segment if it is too long for one.

        Args:
            quiet: (E,), True for frames without speech.
        """
        self.value = self.value._replace(quiet=(*self.value.quiet, *quiet))
        spans = []
        while len(self.value.quiet) > self.longest:
            spans.append(self._span(self.size(self.value.quiet), self.longest, ends=False))
        return spans

    def end_segment(self) -> Span:
        """Return the last span of a segment that ends with a pause here."""
        size = len(self.value.quiet)
        pause = next((i for i, quiet in enumerate(reversed(self.value.quiet)) if not quiet), 0)
        return self._span(size - pause // 2, size, ends=True)

    def finish(self) -> Span | None:
        """Return the last span of the stream; None if no frames remain."""
        size = len(self.value.quiet)
        return self._span(size, size, ends=True) if size or self.value.open else None

    def _span(self, size: int, seen: int, ends: bool) -> Span:
        """Return a span of `size` frames, of which the network sees `seen` more."""
        start, quiet, _ = self.value
        span = Span(self.first_needed, start, start + size, start + seen, ends)
        self.value = SpansValue(start + size, quiet[size:], not ends)
        return span
