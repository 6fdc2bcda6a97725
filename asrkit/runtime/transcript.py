"""A stream's transcript: from frames to results, segment by segment.

Frames are the output of the network's head, which a search reads: (E, V).

With a second pass, an ended segment waits for its frames in the larger context. Until they are
appended, its words are shown like those of the open segment.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from asrkit.runtime.endpoint import Endpointer, EndpointState
from asrkit.runtime.open_segment import OpenSegment, SegmentValue
from asrkit.runtime.postprocess import applied
from asrkit.runtime.results import Grown, Result, Segment
from asrkit.runtime.second_pass import SecondPass, Span, Spans, SpansValue
from asrkit.runtime.serialization import require
from asrkit.runtime.words import Word, joined, rewritten, seconds
from asrkit.search import Search
from asrkit.text import Tokenizer

PIECE = 16  # frames to search at once: the search of those after an endpoint is repeated


class DecodingOptions(NamedTuple):
    """The options for turning the head's frames into text.

    Fields:
        tokenizer: tokenizer of the network's labels.
        search: search that turns frames into a hypothesis.
        endpointer: endpointer that ends segments; None for one segment.
        postprocess: function that rewrites the text of a segment.
        second: second pass, which recognises each ended segment again; None for one pass.
    """

    tokenizer: Tokenizer
    search: Search
    endpointer: Endpointer | None = None
    postprocess: Callable[[str], str] | None = None
    second: SecondPass | None = None

    @property
    def resets_encoder(self) -> bool:
        """Whether every segment starts as a new stream."""
        return self.endpointer is not None and self.endpointer.reset_encoder


class TranscriptValue(NamedTuple):
    """The stored values of a transcript; its other attributes are derived from these."""

    segments: tuple[Segment, ...]
    frame: int
    start: int
    ended: int
    finished: bool
    endpoint: EndpointState | None
    open: SegmentValue
    spans: SpansValue
    waiting: tuple[tuple[Span, tuple[Word, ...]], ...]
    again: SegmentValue | None


class Transcript:
    """The text of a stream so far. At the end of a segment the search starts anew.

    Args:
        decoding: options that determine how frames become text.
        frame_ms: milliseconds of an encoder frame.
        context: name of the context in which the frames were computed.
        lead_ms: milliseconds before the first sample, see `WordReader`.

    Attributes:
        waiting: spans that wait for their frames in the larger context, each with the words that
            the first pass found in the segment that ends with it.
        ended: number of segments that the first pass has ended.
    """

    def __init__(
        self, decoding: DecodingOptions, frame_ms: int, context: str = "", lead_ms: int = 0
    ) -> None:
        self.decoding, self.frame_ms, self.context = decoding, frame_ms, context
        self.lead_ms = lead_ms
        self.segments: list[Segment] = []  # only appended to, because results share it
        self.closed: list[Word] = []  # words of the segments; only appended to
        self.frame = 0  # number of encoder frames appended
        self.start = 0  # first frame of the next item of `segments`
        self.ended, self.finished = 0, False
        self.endpoint: EndpointState | None = None
        if decoding.endpointer is not None:
            self.endpoint = decoding.endpointer.start()
        self.open = self.begin(decoding.search, 0)
        self.spans = Spans(frame_ms)
        self.waiting: deque[tuple[Span, Sequence[Word]]] = deque()
        self.again: OpenSegment | None = None
        if decoding.second is not None:
            self.again = self.begin(decoding.second.search, 0)

    def begin(self, search: Search, frame: int) -> OpenSegment:
        return OpenSegment(search, self.decoding.tokenizer, self.frame_ms, frame, self.lead_ms)

    def seconds(self, frame: int) -> float:
        """Return the start of an encoder frame in seconds of the stream."""
        return seconds(frame, self.frame_ms, self.lead_ms)

    def append(
        self, frames: Tensor, duration: float = math.inf, speech: Sequence[bool] = (),
        after: Any = None,
    ) -> None:  # fmt: skip
        """Append frames.

        Args:
            frames: (E, V).
            duration: seconds of audio so far; the last frame may reach further.
            speech: whether a detector finds speech in each frame; missing frames have none.
            after: state of the search of `open` after the frames, if it is known.
        """
        size = len(frames) if self.decoding.endpointer is None else PIECE
        while True:
            part = frames if after is not None else frames[:size]
            after = self.open.after(part) if after is None else after
            flags = itertools.zip_longest(after.quiet, speech[: len(part)], fillvalue=False)
            quiet = [is_quiet and not has_speech for is_quiet, has_speech in flags]
            end = self.endpoint_in(quiet, after.ends)
            if end is not None and end < len(part):  # the next segment begins with the rest
                part, after = part[:end], self.open.after(part[:end])
            self.open.append(after)
            self.frame += len(part)
            if self.decoding.second is not None:
                self.waiting += [(span, ()) for span in self.spans.append(quiet[: len(part)])]
            if end is not None:
                self.end_segment(duration)
            frames, speech, after = frames[len(part) :], speech[len(part) :], None
            if not len(frames):
                return

    def endpoint_in(self, quiet: Sequence[bool], ends: Sequence[float]) -> int | None:
        """Return the frames up to the first endpoint; those after it belong to the next segment.

        Without an endpoint, all of them belong to this one.
        """
        endpointer = self.decoding.endpointer
        if endpointer is None or self.endpoint is None:
            return None
        ends = () if endpointer.end_of_turn is None else ends
        self.endpoint, found = endpointer.step(self.endpoint, quiet, self.frame_ms, ends)
        if not found:
            return None
        self.endpoint = endpointer.start()
        return found[0]

    def end_segment(self, duration: float) -> None:
        """End the open segment here, if it has words.

        If a postprocess leaves none of the words, they are dropped and the segment continues.
        """
        found = self.open.words(min(duration, self.seconds(self.frame)))
        if not found:
            return
        if self.decoding.second is None:
            self.add_segment(self.open, self.frame, duration, self.context)
        else:
            self.waiting.append((self.spans.end_segment(), self.written(found)))
        self.open = self.begin(self.decoding.search, self.frame)
        self.ended += 1

    def add_segment(self, segment: OpenSegment, frame: int, duration: float, context: str) -> None:
        """Append a segment that ends before `frame`, if it has words."""
        end = min(duration, self.seconds(frame))
        words = self.written(segment.words(end))
        if words:
            start = self.seconds(self.start)
            self.segments.append(
                Segment(joined(words), words, start, end, segment.nbest(), context)
            )
            self.closed += words
            self.start = frame

    def second_search(self, frames: Tensor) -> tuple[OpenSegment, Tensor]:
        """Return the segment of the second pass, and the frames of its text, (E, V).

        Args:
            frames: (last - first, V) of the longest waiting span.
        """
        assert self.again is not None
        return self.again, self.waiting[0][0].of(frames)

    def finalize(self, frames: Tensor, duration: float = math.inf, after: Any = None) -> None:
        """Append the second pass's frames of the longest waiting span.

        Args:
            frames: (last - first, V) of the span.
            duration: seconds of audio so far.
            after: state of the search of `again` after the frames, if it is known.
        """
        second = self.decoding.second
        assert second is not None
        assert self.again is not None
        segment, text = self.second_search(frames)
        segment.append(segment.after(text) if after is None else after)
        span, _ = self.waiting.popleft()
        if span.ends:
            self.add_segment(self.again, span.end, duration, second.engine.spec.context_name)
            self.again = self.begin(second.search, span.end)

    @property
    def value(self) -> TranscriptValue:
        waiting = tuple((span, tuple(words)) for span, words in self.waiting)
        return TranscriptValue(
            tuple(self.segments), self.frame, self.start, self.ended, self.finished,
            self.endpoint, self.open.value, self.spans.value, waiting,
            None if self.again is None else self.again.value,
        )  # fmt: skip

    def restore(self, value: TranscriptValue, vocab_size: int) -> None:
        """Restore a value of a stream with the same options.

        Raises:
            ValueError: if the value is not valid.
        """
        frame, spans, again = value.frame, [span for span, _ in value.waiting], value.again
        require(
            0 <= value.start <= frame and 0 <= value.open.start <= frame, "a segment starts late"
        )
        require((value.endpoint is None) == (self.endpoint is None), "an endpointer is missing")
        require((again is None) == (self.again is None), "a second pass is missing")
        if value.endpoint is not None:
            count, pause, _, goes_on = value.endpoint
            require(0 <= pause <= count <= frame, "the pause is longer than the stream")
            require(0.0 <= goes_on <= 1.0, "the end of a turn has no probability")
        if again is not None:
            count = value.spans.start + len(value.spans.quiet)
            require(count == frame, f"the spans have {count} frames of {frame}")
        self.spans.restore(value.spans, frame)
        done = 0 if again is None else again.start
        for span in spans:
            require(
                done <= span.start <= span.end <= span.last <= frame
                and 0 <= span.first <= span.start
                and span.first < span.last,
                "the spans overlap",
            )
            done = span.end
        self.segments, self.frame, self.start = [*value.segments], frame, value.start
        self.closed = [word for segment in self.segments for word in segment.words]
        self.ended, self.finished = value.ended, value.finished
        self.endpoint, self.waiting = value.endpoint, deque(value.waiting)
        self.open = self.begin(self.decoding.search, value.open.start)
        self.open.restore(value.open, vocab_size, frame)
        if again is not None and self.decoding.second is not None:
            self.again = self.begin(self.decoding.second.search, again.start)
            first = spans[0].start if spans else value.spans.start
            self.again.restore(again, vocab_size, first)

    def partial(self) -> Result:
        """Return the result so far; final if the stream has ended and no span waits."""
        shown = [word for _, words in self.waiting for word in words]
        opened, last = self.open.partial(self.seconds(self.frame))
        if shown or self.decoding.postprocess is not None:
            words = (*shown, *self.written([*opened.read(), *last]))
            opened, last = Grown([], 0), words
        closed, segments = (Grown(each, len(each)) for each in (self.closed, self.segments))
        is_final = self.finished and not self.waiting
        result = Result.shared(closed, opened, last, is_final, segments)
        if self.decoding.postprocess is None and self.decoding.second is None:
            vars(result)["_stable"] = self.open.stable_text()
        return result

    def finish(self, duration: float) -> Result:
        """Return the result if the stream ends after `duration` seconds; final if no span waits."""
        end = self.spans.finish() if self.decoding.second is not None else None
        if self.decoding.second is None:
            self.end_segment(duration)
        elif end is not None:
            found = self.open.words(min(duration, self.seconds(self.frame)))
            self.waiting.append((end, self.written(found)))
        self.open = self.begin(self.decoding.search, self.frame)
        self.finished = True
        return self.partial()

    def written(self, words: Sequence[Word]) -> tuple[Word, ...]:
        """Return the words of a segment after the postprocess."""
        if self.decoding.postprocess is not None and words:
            words = rewritten(words, applied(self.decoding.postprocess, joined(words)))
        return tuple(words)
