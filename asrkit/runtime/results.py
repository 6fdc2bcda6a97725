"""What a recogniser answers."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from asrkit.runtime import formats
from asrkit.runtime.word import Word, joined
from asrkit.search import NOTHING, Hypothesis, Ranked
from asrkit.text import Tokenizer, decode
from asrkit.text.graphemes import divides_units

# The first token of a word comes after its start, the last before its end: words are so much
# longer than their tokens. Of digits in a row with known edges, nine of ten begin at least
# LEAD before their first token, and half end TRAIL or more after their last.
LEAD, TRAIL = 0.06, 0.04  # seconds

RECENT = 32  # tokens of a hypothesis that are read anew: searches rarely think again of older ones


class Candidate(NamedTuple):
    """A text that a search holds possible."""

    text: str
    score: float  # natural logarithm, with all that a language model adds
    probability: float  # among those of the list


class Segment(NamedTuple):
    """What was said from one endpoint to the next; segments follow each other without a gap."""

    text: str
    words: tuple[Word, ...]
    start: float  # seconds from the start of the stream
    end: float
    # The likeliest first; greedy search has none. What several token sequences write counts
    # together here, but `text` is the likeliest sequence's: rarely, it is not the first.
    nbest: tuple[Candidate, ...] = ()
    context: str = ""  # of the network that the text is from: "640 ms", or "full"


class Grown(NamedTuple):
    """The first items of a list that only grows: the same ones whatever is added to it later."""

    items: list[Any]
    size: int

    def read(self) -> tuple[Any, ...]:
        return tuple(self.items[: self.size])


class Earlier(NamedTuple):
    """What a session's streams before this one gave, all of them ended."""

    words: Grown
    segments: Grown
    seconds: float  # of audio

    @classmethod
    def of(cls, segments: Sequence[Segment] = (), seconds: float = 0.0) -> "Earlier":
        """Of so many seconds with these segments."""
        words = [word for segment in segments for word in segment.words]
        return cls(Grown(words, len(words)), Grown([*segments], len(segments)), seconds)

    def followed_by(self, result: "Result", seconds: float) -> "Earlier":
        """With the final result of the next stream, of so many seconds."""
        self.words.items.extend(delayed(word, self.seconds) for word in result.words)
        self.segments.items.extend(self.later(segment) for segment in result.segments)
        words, segments = (Grown(each.items, len(each.items)) for each in self[:2])
        return Earlier(words, segments, self.seconds + seconds)

    def later(self, segment: Segment) -> Segment:
        """A segment of the next stream, with its times in the session."""
        start, end = (round(at + self.seconds, 3) for at in (segment.start, segment.end))
        words = tuple(delayed(word, self.seconds) for word in segment.words)
        return segment._replace(words=words, start=start, end=end)


def delayed(word: Word, seconds: float) -> Word:
    """A word so much later."""
    start, end = round(word.start + seconds, 3), round(word.end + seconds, 3)
    return word._replace(start=start, end=end)


class Update(NamedTuple):
    """What is new in a result since an earlier one of the same session."""

    segments: tuple[Segment, ...]  # that ended since
    words: tuple[Word, ...]  # after the last segment, all of them: they may have changed
    stable_text: str  # of those words, what no later result takes back
    is_final: bool

    @property
    def text(self) -> str:
        """Of the words after the last segment."""
        return joined(self.words)


class Result:
    """What is known of a stream, or of a recording. Never changes.

    The results of a stream share what they have in common, so that one costs what is new in it;
    text and tuples are made when they are read.

    Args:
        text: of all segments, and of what came after them.
        words: likewise.
        is_final: whether the stream has ended.
        segments: those that ended: they cannot change any more.
    """

    _fields = ("text", "words", "is_final", "segments")
    is_final: bool
    _closed: Grown  # words of the segments
    _open: tuple[Grown, Sequence[Word]]  # words after them
    _segments: Grown
    _earlier: Earlier | None = None  # whose words and segments come before these
    _stable: Callable[[], str] | None = None  # the stable text of the words after the segments

    def __init__(
        self, text: str, words: Sequence[Word], is_final: bool, segments: Sequence[Segment] = ()
    ) -> None:
        count = sum(len(segment.words) for segment in segments)
        closed, last = Grown([*words[:count]], count), words[count:]
        ended = Grown([*segments], len(segments))
        vars(self).update(vars(self.shared(closed, Grown([], 0), last, is_final, ended)), text=text)

    @classmethod
    def shared(
        cls, closed: Grown, opened: Grown, last: Sequence[Word], is_final: bool, segments: Grown
    ) -> "Result":
        """A result of a stream, of what others hold as well.

        Args:
            closed: words of the segments.
            opened: words after them.
            last: words after those, of this result alone.
            is_final: whether the stream has ended.
            segments: those that ended.
        """
        result = cls.__new__(cls)
        vars(result).update(
            _closed=closed, _open=(opened, last), is_final=is_final, _segments=segments
        )
        return result

    def after(self, earlier: Earlier, is_final: bool) -> "Result":
        """This result of a stream as that of a session with streams before it."""
        result = Result.shared(self._closed, *self._open, is_final, self._segments)
        vars(result).update(_earlier=earlier, _stable=self._stable)
        return result

    @cached_property
    def text(self) -> str:
        """Of all segments, and of what came after them."""
        return joined(self.words)

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """Of all segments, and those after them."""
        closed = self._closed.read()
        if self._earlier is not None:
            seconds = self._earlier.seconds
            closed = (*self._earlier.words.read(), *(delayed(word, seconds) for word in closed))
        return closed + self._open_words

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Those that ended: they cannot change any more."""
        return self._segments_from(0)

    def _segments_from(self, first: int) -> tuple[Segment, ...]:
        """The segments but so many."""
        own, earlier = self._segments, self._earlier
        if earlier is None:
            return tuple(own.items[first : own.size])
        before, later = (
            earlier.segments,
            own.items[max(0, first - earlier.segments.size) : own.size],
        )
        return (*before.items[first : before.size], *map(earlier.later, later))

    @property
    def _num_segments(self) -> int:
        return self._segments.size + (self._earlier.segments.size if self._earlier else 0)

    @property
    def _open_words(self) -> tuple[Word, ...]:
        opened, last = self._open
        words = (*opened.read(), *last)
        if self._earlier is None:
            return words
        return tuple(delayed(word, self._earlier.seconds) for word in words)

    @property
    def stable_text(self) -> str:
        """The beginning of the text that stays as it is, whatever comes: of all segments, and what
        is certain of the words after them."""
        closed = " ".join(segment.text for segment in self.segments)
        return " ".join(filter(None, [closed, self._stable_open_text]))

    @property
    def _stable_open_text(self) -> str:
        return "" if self._stable is None else self._stable()

    def since(self, before: "Result | None") -> Update:
        """What is new since an earlier result of the same session, or since its start.

        However long the session is, this costs what is new and what the open segment holds.
        """
        first = 0 if before is None else before._num_segments
        return Update(
            self._segments_from(first), self._open_words, self._stable_open_text, self.is_final
        )

    @property
    def open_text(self) -> str:
        """The text after the last segment, which may still change."""
        return joined(self._open_words)

    @property
    def nbest(self) -> tuple[Candidate, ...]:
        """The likeliest texts of a final result in one segment; several have theirs each."""
        return self.segments[0].nbest if self.is_final and self._num_segments == 1 else ()

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{k}={v!r}' for k, v in self._asdict().items())})"

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, field) for field in self._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a result cannot be changed; _replace makes another")

    def __reduce__(self) -> tuple[Any, ...]:
        return Result, tuple(self)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **changes: Any) -> "Result":
        return Result(**(self._asdict() | changes))

    def to(self, form: str, id: str = "", duration: float | None = None) -> str:
        """The words as a file of a format: "srt", "ctm", …, see formats.FORMATS.

        Args:
            form: name of the format.
            id: of the recording, where the format has a place for it.
            duration: of the recording in seconds, likewise.

        Raises:
            UserError: for a format that is not one.
        """
        return formats.write(form, [formats.Recording(self.words, id, duration)])


class WordReader:
    """Timed words of a segment's hypotheses, one after another.

    In scripts without spaces each label that begins a unit begins a word, with the label's time.

    All but RECENT tokens are read once, unless they change: the time for a partial result does not
    depend on how long the stream has lasted, nor on how long its words are.

    Args:
        tokenizer: of the tokens.
        frame_ms: milliseconds of an encoder frame.
        start: encoder frames of the stream before the segment.
        lead_ms: milliseconds from where the first of them begins to the stream's first sample.
    """

    def __init__(
        self, tokenizer: Tokenizer, frame_ms: int, start: int = 0, lead_ms: int = 0
    ) -> None:
        self.tokenizer, self.frame_ms, self.start = tokenizer, frame_ms, start
        self.lead_ms = lead_ms
        self.closed: list[Word] = []
        self.end = self.seconds(0)  # of the last closed word's tokens
        self.last: list[Word] = []  # the word after, which the next token may make longer
        self.prefix = NOTHING  # the tokens of all of these

    def __call__(self, hypothesis: Hypothesis, duration: float = math.inf) -> list[Word]:
        """The words of a hypothesis; `duration`: seconds of audio, which none goes beyond."""
        last = self.last_words(hypothesis, duration)  # before those that it may close are read
        return [*self.closed, *last]

    def last_words(self, hypothesis: Hypothesis, duration: float = math.inf) -> list[Word]:
        """Those of its words that are not in `closed`, to which it may add some.

        `closed` only grows; when the search changes one of its words, it is another list.
        """
        size = len(self.prefix.tokens)
        if part(hypothesis, 0, size) != self.prefix:  # the search thought better of it
            self.closed, self.end, self.last = [], self.seconds(0), []
            self.prefix, size = NOTHING, 0
        if len(hypothesis.tokens) - RECENT > size:
            prefix = part(hypothesis, 0, len(hypothesis.tokens) - RECENT)
            words = self.read(prefix)
            self.closed += widened(words, self.end, duration)[:-1]
            self.end = words[-2].end if len(words) > 1 else self.end
            self.last, self.prefix = words[-1:], prefix
        return widened(self.read(hypothesis), self.end, duration)

    def read(self, hypothesis: Hypothesis) -> list[Word]:
        """The words after the closed ones, with the times of their tokens."""
        words, size, piece_of = list(self.last), len(self.prefix.tokens), self.tokenizer.piece
        # Whether the next piece starts a word.
        fresh = not words or piece_of(hypothesis.tokens[size - 1]).endswith(" ")
        for token, begin, end, confidence in zip(*part(hypothesis, size, None), strict=True):
            piece = piece_of(token)
            fresh = fresh or piece.startswith(" ")
            text = piece.strip()
            if not text:
                continue
            if fresh or divides_units(words[-1].text, text):
                times = self.seconds(begin), self.seconds(end)
                words.append(Word(text, *times, confidence).with_space(fresh))
            else:  # the word becomes longer
                word = words[-1]
                words[-1] = word._replace(
                    text=word.text + text,
                    end=self.seconds(end),
                    confidence=word.confidence * confidence,
                )
            fresh = piece.endswith(" ")
        return words

    def seconds(self, frame: int) -> float:
        """When a frame of the segment begins, from the start of the stream."""
        return seconds(self.start + frame, self.frame_ms, self.lead_ms)


def widened(words: Sequence[Word], before: float, duration: float) -> list[Word]:
    """Words as long as they are said, from their tokens' times; none reaches into another.

    Args:
        words: with the times of their tokens.
        before: when the tokens of the word before them end.
        duration: seconds of audio.
    """
    ends = [before, *(word.end for word in words)]
    starts = [max(round(w.start - LEAD, 3), end) for w, end in zip(words, ends, strict=False)]
    limits = [*starts, duration][1:]
    return [
        word._replace(start=start, end=min(round(word.end + TRAIL, 3), limit))
        for word, start, limit in zip(words, starts, limits, strict=True)
    ]


def candidates(ranked: Sequence[Ranked], tokenizer: Tokenizer) -> tuple[Candidate, ...]:
    """The texts of an n-best list; what several token sequences write counts once."""
    scores: dict[str, list[float]] = {}
    for hypothesis, score in ranked:
        scores.setdefault(decode(tokenizer, hypothesis.tokens), []).append(score)
    totals = {text: float(np.logaddexp.reduce(each)) for text, each in scores.items()}
    everything = np.logaddexp.reduce([*totals.values()])
    return tuple(
        Candidate(text, score, math.exp(score - everything))
        for text, score in sorted(totals.items(), key=itemgetter(1), reverse=True)
    )


def part(hypothesis: Hypothesis, start: int, end: int | None) -> Hypothesis:
    """Some of the tokens, with all that is known of them."""
    tokens, starts, ends, confidences = hypothesis
    return Hypothesis(tokens[start:end], starts[start:end], ends[start:end], confidences[start:end])


def seconds(frame: int, frame_ms: int, lead_ms: int = 0) -> float:
    """When an encoder frame begins, the first of them `lead_ms` before the first sample."""
    return max(0, frame * frame_ms - lead_ms) / 1000
