"""Results of a recogniser."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from asrkit.runtime import formats
from asrkit.runtime.words import Word, joined
from asrkit.search import Ranked
from asrkit.search.beam import in_order
from asrkit.text import Tokenizer, decode


class Candidate(NamedTuple):
    """An entry of the n-best list."""

    text: str
    score: float  # natural logarithm, including a language model
    probability: float  # share among the entries of the list


class Segment(NamedTuple):
    """The text from one endpoint to the next; segments follow each other without a gap.

    `start` and `end` are those of its audio. Outputs have the times of its words, `spoken` and
    `spoken_end`.
    """

    text: str
    words: tuple[Word, ...]
    start: float  # seconds from the start of the session
    end: float
    # The likeliest entry first; empty for greedy search. An entry joins all token sequences that
    # write its text, but `text` is that of the likeliest sequence: rarely, it is not the first.
    nbest: tuple[Candidate, ...] = ()
    context: str = ""  # name of the context of the network that recognised it: "320+160 ms", "full"

    @property
    def spoken(self) -> float:
        """Start of the first word in seconds; of the segment if it has none."""
        return self.words[0].start if self.words else self.start

    @property
    def spoken_end(self) -> float:
        """End of the last word in seconds; of the segment if it has none."""
        return self.words[-1].end if self.words else self.end


class Grown(NamedTuple):
    """The first items of a list that only grows; they stay the same whatever is appended."""

    items: list[Any]
    size: int

    def read(self, first: int = 0) -> tuple[Any, ...]:
        """Return these items without the `first` ones."""
        return tuple(self.items[first : self.size])


class Update(NamedTuple):
    """The difference between a result and an earlier one of the same session."""

    segments: tuple[Segment, ...]  # segments that ended since
    words: tuple[Word, ...]  # all words after the last segment, which may have changed
    stable_text: str  # text of those words that no later result changes
    is_final: bool

    @property
    def text(self) -> str:
        """Text of the words after the last segment."""
        return joined(self.words)


class Result:
    """A result of a stream or of a recording. Never changes.

    The results of a stream share their common parts, so a new result costs only what is new in it.
    Text and tuples are built when they are read.

    Args:
        text: text of all segments, and of the words after them.
        words: words of all segments, and those after them.
        is_final: whether the stream has ended.
        segments: segments that ended and cannot change any more.
    """

    is_final: bool
    _segments: Grown
    _closed: Grown  # words after the segments that other results have, too
    _last: Sequence[Word]  # words after these
    _stable: Callable[[], str]  # computes the stable text of the words after the segments

    def __init__(
        self, text: str, words: Sequence[Word], is_final: bool, segments: Sequence[Segment] = ()
    ) -> None:
        self.text, self.words, self.is_final = text, tuple(words), is_final
        self._segments, self._closed = Grown([*segments], len(segments)), Grown([], 0)
        self._last = words[sum(len(segment.words) for segment in segments) :]
        self._stable = str  # no text

    @classmethod
    def shared(
        cls,
        segments: Grown,
        closed: Grown,
        last: Sequence[Word],
        is_final: bool,
        stable: Callable[[], str] = str,
    ) -> "Result":
        """Make a result of a stream from parts that other results share.

        Args:
            segments: segments that ended.
            closed: words after the segments.
            last: words after `closed`, which only this result has.
            is_final: whether the stream has ended.
            stable: computes the stable text of the words after the segments; `str` for none.
        """
        result = cls.__new__(cls)
        result._segments, result._closed, result._last = segments, closed, last
        result.is_final, result._stable = is_final, stable
        return result

    @cached_property
    def text(self) -> str:
        """Text of all segments, and of the words after them."""
        return joined(self.words)

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """Words of all segments, and those after them."""
        closed = (word for segment in self.segments for word in segment.words)
        return (*closed, *self._open_words)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Segments that ended and cannot change any more."""
        return self._segments.read()

    @property
    def _open_words(self) -> tuple[Word, ...]:
        return (*self._closed.read(), *self._last)

    @property
    def stable_text(self) -> str:
        """Beginning of the text that no later result changes: the text of all segments, and the
        stable text of the words after them."""
        closed = " ".join(segment.text for segment in self.segments)
        return " ".join(filter(None, [closed, self._stable()]))

    def since(self, before: "Result | None") -> Update:
        """Return what changed since an earlier result of the same session, or since its start.

        The cost depends on the new segments and the open segment, not on the length of the session.
        """
        first = 0 if before is None else before._segments.size
        segments = self._segments.read(first)
        return Update(segments, self._open_words, self._stable(), self.is_final)

    @property
    def open_text(self) -> str:
        """The text after the last segment, which may still change."""
        return joined(self._open_words)

    @property
    def nbest(self) -> tuple[Candidate, ...]:
        """Likeliest texts of a final result with one segment; segments have their own lists."""
        return self.segments[0].nbest if self.is_final and self._segments.size == 1 else ()

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return "Result(text={!r}, words={!r}, is_final={!r}, segments={!r})".format(*self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Result, self._value

    @property
    def _value(self) -> tuple[Any, ...]:
        """Arguments that make an equal result."""
        return self.text, self.words, self.is_final, self.segments

    def to(self, form: str, id: str = "", duration: float | None = None) -> str:
        """Write the words in a file format: "srt", "json", …, see formats.FORMATS.

        Args:
            form: name of the format.
            id: name of the recording, for formats that contain it.
            duration: duration of the recording in seconds, for formats that contain it.

        Raises:
            UserError: for an unknown format.
        """
        return formats.write(form, [formats.Recording(self.words, id, duration)])


def candidates(ranked: Sequence[Ranked], tokenizer: Tokenizer) -> tuple[Candidate, ...]:
    """Return the texts of an n-best list; token sequences with the same text are joined.

    Texts whose scores differ by rounding alone stay in the order of the search.
    """
    scores: dict[str, list[float]] = {}
    for hypothesis, score in ranked:
        scores.setdefault(decode(tokenizer, hypothesis.tokens), []).append(score)
    totals = {text: float(np.logaddexp.reduce(parts)) for text, parts in scores.items()}
    total = np.logaddexp.reduce([*totals.values()])
    return tuple(
        Candidate(text, score, math.exp(score - total))
        for text, score in in_order(totals.items(), itemgetter(1))
    )
