"""A stream's transcript: from emissions to results, segment by segment.

Emissions are the output of the network's head, which a search reads: (E, V), for a transducer
(E, D). With a second pass, an ended segment waits for those of the larger context. Until they are
appended, its words are shown like those of the open segment.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from asrkit.errors import UserError
from asrkit.runtime.endpoint import Endpointer, EndpointState
from asrkit.runtime.long_audio import SecondPass, Span, Spans, SpansValue
from asrkit.runtime.postprocess import applied
from asrkit.runtime.results import Grown, Result, Segment, candidates
from asrkit.runtime.serialization import read
from asrkit.runtime.words import Clock, Word, WordReader, joined, rewritten
from asrkit.search import Search
from asrkit.text import Tokenizer, decode

PIECE = 16  # frames to search at once: the search of those after an endpoint is repeated


class DecodingOptions(NamedTuple):
    """The options for turning the head's emissions into text."""

    tokenizer: Tokenizer  # of the network's labels
    search: Search  # turns emissions into a hypothesis
    endpointer: Endpointer | None = None  # ends segments; None for one segment
    postprocess: Callable[[str], str] | None = None  # rewrites the text of a segment
    second: SecondPass | None = None  # recognises each ended segment again; None for one pass


class SegmentValue(NamedTuple):
    """The stored values of a segment; its words are derived from the search's state."""

    start: int
    state: Any  # state of the search


class OpenSegment:
    """A segment to which emissions are appended: the state of its search, and its words.

    Args:
        search: search that turns emissions into a hypothesis.
        read: reader of the hypothesis, which has the segment's place in the stream.
    """

    def __init__(self, search: Search, read: WordReader) -> None:
        self.search, self.state, self.read = search, search.start(), read

    @property
    def value(self) -> SegmentValue:
        if self.search.Value is None:
            raise UserError(f"a stream with a {type(self.search).__name__} cannot be saved")
        return SegmentValue(self.read.start, self.search.to_value(self.state))

    def restore(self, value: SegmentValue) -> None:
        self.state = self.search.from_value(read(self.search.Value, *value.state))

    def append(self, emissions: np.ndarray, after: Any = None) -> None:
        """Append (E, V or D) emissions.

        Args:
            after: the search's state after the emissions, if it is known.
        """
        self.state = self.search.step(self.state, emissions) if after is None else after

    def words(self, duration: float) -> list[Word]:
        """Return the words if the segment ends here, after `duration` seconds of the stream."""
        return self.read(self.search.best(self.state), duration)


class TranscriptValue(NamedTuple):
    """The stored values of a transcript; its other attributes are derived from these."""

    frame: int
    start: int
    finished: bool
    endpoint: EndpointState | None
    live: SegmentValue
    spans: SpansValue
    waiting: tuple[tuple[Span, tuple[Word, ...]], ...]
    final: SegmentValue | None


class Transcript:
    """The text of a stream so far. At the end of a segment the search starts anew.

    Args:
        decoding: options that determine how emissions become text.
        clock: times of the stream's frames.
        context: name of the context in which the emissions were computed.
        segments: segments of the session, to which the transcript appends its own.

    Attributes:
        live: segment to which the first pass appends.
        final: segment to which the second pass appends; None with one pass.
        waiting: spans that wait for their emissions in the larger context, each with the words that
            the first pass found in the segment that ends with it.
    """

    def __init__(
        self,
        decoding: DecodingOptions,
        clock: Clock,
        context: str = "",
        segments: list[Segment] | None = None,
    ) -> None:
        self.decoding, self.clock, self.context = decoding, clock, context
        self.segments = [] if segments is None else segments  # results share it
        self.frame = 0  # number of encoder frames appended
        self.start = 0  # first frame of the next item of `segments`
        self.finished = False
        self.endpoint = decoding.endpointer.start() if decoding.endpointer else None
        self.live = self.begin(decoding.search, 0)
        self.spans = Spans(clock.frame_ms)
        self.waiting: deque[tuple[Span, Sequence[Word]]] = deque()
        self.final = self.begin(decoding.second.search, 0) if decoding.second else None

    def begin(self, search: Search, frame: int) -> OpenSegment:
        return OpenSegment(search, WordReader(self.decoding.tokenizer, self.clock, frame))

    def append(
        self, emissions: np.ndarray, duration: float = math.inf, speech: Sequence[bool] = (),
        after: Any = None,
    ) -> None:  # fmt: skip
        """Append the emissions of frames.

        Args:
            emissions: (E, V or D).
            duration: seconds of the session so far; the last frame may reach further.
            speech: whether a detector finds speech in each frame; missing frames have none.
            after: state of the search of `live` after the emissions, if it is known.
        """
        endpointer = self.decoding.endpointer
        size = len(emissions) if endpointer is None else PIECE
        while True:
            part = emissions if after is not None else emissions[:size]
            before = self.live.state
            self.live.append(part, after)
            state = self.live.state
            flags = itertools.zip_longest(state.quiet, speech[: len(part)], fillvalue=False)
            quiet = [is_quiet and not has_speech for is_quiet, has_speech in flags]
            cuts: list[int] = []
            if endpointer is not None and self.endpoint is not None:
                self.endpoint, cuts = endpointer.step(
                    self.endpoint, quiet, self.clock.frame_ms, state.ends
                )
                if cuts:
                    self.endpoint = endpointer.start()
                if cuts and cuts[0] < len(part):  # the next segment begins with the rest
                    part, self.live.state = part[: cuts[0]], before
                    self.live.append(part)
            self.frame += len(part)
            if self.decoding.second is not None:
                self.waiting += [(span, ()) for span in self.spans.append(quiet[: len(part)])]
            if cuts:
                self.end_segment(duration)
            emissions, speech, after = emissions[len(part) :], speech[len(part) :], None
            if not len(emissions):
                return

    def skip(self, frames: int) -> bool:
        """Append the last frames of the stream without emissions, unless the text needs them.

        It needs them in one pass, and where a segment or a span could end among them.
        """
        if self.decoding.second is None or not self.spans.has_room(frames):
            return False
        endpointer, state = self.decoding.endpointer, self.endpoint
        if endpointer and state and endpointer.may_end(state, frames, self.clock.frame_ms):
            return False
        self.spans.append([False] * frames)
        self.frame += frames
        return True

    def end_segment(self, duration: float) -> None:
        """End the live segment here, if it has words.

        If a postprocess leaves none of the words, they are dropped and the segment continues.
        """
        words = self.live.words(min(duration, self.clock.seconds(self.frame)))
        if not words:
            return
        if self.decoding.second is None:
            self.add_segment(self.live, self.frame, duration, self.context)
        else:
            self.waiting.append((self.spans.end_segment(), self.written(words)))
        self.live = self.begin(self.decoding.search, self.frame)

    def add_segment(self, segment: OpenSegment, frame: int, duration: float, context: str) -> None:
        """Append a segment that ends before `frame`, if it has words."""
        end = min(duration, self.clock.seconds(frame))
        words = self.written(segment.words(end))
        if words:
            start = self.clock.seconds(self.start)
            nbest = candidates(segment.search.nbest(segment.state), self.decoding.tokenizer)
            self.segments.append(Segment(joined(words), words, start, end, nbest, context))
            self.start = frame

    def append_second_pass(
        self, emissions: np.ndarray, duration: float = math.inf, after: Any = None
    ) -> None:
        """Append the second pass's emissions of the longest waiting span.

        Args:
            emissions: (last - first, V or D) of the span.
            duration: seconds of the session so far.
            after: state of the search of `final` after the emissions, if it is known.
        """
        second = self.decoding.second
        assert second is not None
        assert self.final is not None
        span, _ = self.waiting.popleft()
        self.final.append(span.of(emissions), after)
        if span.ends:
            self.add_segment(self.final, span.end, duration, second.engine.spec.context_name)
            self.final = self.begin(second.search, span.end)

    @property
    def value(self) -> TranscriptValue:
        waiting = tuple((span, tuple(words)) for span, words in self.waiting)
        return TranscriptValue(
            self.frame, self.start, self.finished, self.endpoint, self.live.value,
            self.spans.value, waiting, None if self.final is None else self.final.value,
        )  # fmt: skip

    def restore(self, value: TranscriptValue) -> None:
        """Restore the value of a stream with the same options."""
        self.frame, self.start = value.frame, value.start
        self.finished, self.endpoint = value.finished, value.endpoint
        self.spans.value = value.spans
        self.waiting = deque(value.waiting)
        self.live = self.begin(self.decoding.search, value.live.start)
        self.live.restore(value.live)
        if value.final is not None and self.decoding.second is not None:
            self.final = self.begin(self.decoding.second.search, value.final.start)
            self.final.restore(value.final)

    def partial(self) -> Result:
        """Return the result so far; final if the stream has ended and no span waits."""
        tokenizer, _, _, postprocess, second = self.decoding
        search, state, reader = self.live.search, self.live.state, self.live.read
        live_words = reader.last_words(search.partial(state), self.clock.seconds(self.frame))
        closed = Grown(reader.closed, len(reader.closed))
        shown = [word for _, words in self.waiting for word in words]
        if shown or postprocess is not None:
            live_words = [*shown, *self.written([*closed.read(), *live_words])]
            closed = Grown([], 0)
        segments = Grown(self.segments, len(self.segments))
        parts = segments, closed, live_words, self.finished and not self.waiting
        if postprocess is not None or second is not None:
            return Result.shared(*parts)
        return Result.shared(*parts, lambda: decode(tokenizer, search.stable(state)))

    def finish(self, duration: float) -> Result:
        """Return the result if the stream ends after `duration` seconds; final if no span waits."""
        end = self.spans.finish() if self.decoding.second is not None else None
        if self.decoding.second is None:
            self.end_segment(duration)
        elif end is not None:
            words = self.live.words(min(duration, self.clock.seconds(self.frame)))
            self.waiting.append((end, self.written(words)))
        self.live = self.begin(self.decoding.search, self.frame)
        self.finished = True
        return self.partial()

    def written(self, words: Sequence[Word]) -> tuple[Word, ...]:
        """Return the words of a segment after the postprocess."""
        if self.decoding.postprocess is not None and words:
            words = rewritten(words, applied(self.decoding.postprocess, joined(words)))
        return tuple(words)


def searched(segments: Sequence[OpenSegment], emissions: Sequence[np.ndarray]) -> list[Any]:
    """Return the search's state of each segment after (E, V or D); None where it is unknown.

    Segments with the same search share its work. A segment with another search, or
    of a call that failed, searches alone in `append`, and raises its own exception.
    """
    states: list[Any] = [None] * len(segments)
    groups: dict[int, list[int]] = {}
    for i, segment in enumerate(segments):
        groups.setdefault(id(segment.search), []).append(i)
    for rows in groups.values():
        if len(rows) > 1:
            before, parts = [segments[i].state for i in rows], [emissions[i] for i in rows]
            with suppress(Exception):
                after = segments[rows[0]].search.step_all(before, parts)
                for i, state in zip(rows, after, strict=True):
                    states[i] = state
    return states
