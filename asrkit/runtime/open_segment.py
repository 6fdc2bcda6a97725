"""A segment to which frames are appended: its hypothesis, and its words."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from torch import Tensor

from asrkit.errors import UserError
from asrkit.runtime.results import Candidate, Grown, candidates
from asrkit.runtime.serialization import read
from asrkit.runtime.words import Word, WordReader
from asrkit.search import Search
from asrkit.text import Tokenizer, decode


class SegmentValue(NamedTuple):
    """The stored values of an open segment; its words are derived from the search's state."""

    start: int
    state: Any  # state of the search


class OpenSegment:
    """A segment to which frames are appended: its hypothesis, and its words.

    Args:
        search: search that turns frames into a hypothesis.
        tokenizer: tokenizer of the network's labels.
        frame_ms: milliseconds of an encoder frame.
        start: encoder frames of the stream before the segment.
        lead_ms: milliseconds before the first sample, see `WordReader`.
    """

    def __init__(
        self, search: Search, tokenizer: Tokenizer, frame_ms: int, start: int, lead_ms: int
    ) -> None:
        self._search, self._state, self._start = search, search.start(), start
        self._read = WordReader(tokenizer, frame_ms, start, lead_ms)

    @property
    def value(self) -> SegmentValue:
        return SegmentValue(self._start, savable(self._search).to_value(self._state))

    def restore(self, value: SegmentValue, vocab_size: int, frame: int) -> None:
        """Restore the value of a segment whose last frame so far precedes frame `frame`."""
        search = savable(self._search)
        state = read(search.Value, *value.state)
        self._state = search.from_value(state, vocab_size, frame - self._start)

    def after(self, frames: Tensor) -> Any:
        """Return the search's state after (E, V) frames."""
        return self._search.step(self._state, frames)

    def append(self, state: Any) -> None:
        """Append the frames after which the search has this state."""
        self._state = state

    def partial(self, duration: float) -> tuple[Grown, Sequence[Word]]:
        """Return the words so far: those that are stored for good, and those after them."""
        last = self._read.last_words(self._search.partial(self._state), duration)
        return Grown(self._read.closed, len(self._read.closed)), last

    def stable_text(self) -> Callable[[], str]:
        """Return a function that computes the stable beginning of the present text."""
        search, state, tokenizer = self._search, self._state, self._read.tokenizer
        return lambda: decode(tokenizer, search.stable(state))

    def words(self, duration: float) -> list[Word]:
        """Return the words if the segment ends here, after `duration` seconds of the stream."""
        return self._read(self._search.best(self._state), duration)

    def nbest(self) -> tuple[Candidate, ...]:
        """Return the likeliest texts if the segment ends here."""
        return candidates(self._search.nbest(self._state), self._read.tokenizer)


def searched(segments: Sequence[OpenSegment], frames: Sequence[Tensor]) -> list[Any]:
    """Return the search's state of each segment after (E, V) frames; None where it is unknown.

    Segments with the same search share its work. A segment with another search, or
    of a call that failed, searches alone, and raises its own exception.
    """
    states: list[Any] = [None] * len(segments)
    groups: dict[int, list[int]] = {}
    for i, segment in enumerate(segments):
        groups.setdefault(id(segment._search), []).append(i)
    for rows in groups.values():
        if len(rows) > 1:
            before, parts = [segments[i]._state for i in rows], [frames[i] for i in rows]
            with suppress(Exception):
                after = segments[rows[0]]._search.step_all(before, parts)
                for i, state in zip(rows, after, strict=True):
                    states[i] = state
    return states


def savable(search: Search) -> Search:
    """Return the search if its states can be saved; raise UserError if not."""
    if search.Value is None:
        raise UserError(f"a stream with a {type(search).__name__} cannot be saved")
    return search
