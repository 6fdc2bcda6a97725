"""From the log-probabilities of one stream to its results, segment by segment."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from asrkit.runtime.endpoint import Endpointer
from asrkit.runtime.results import (
    Grown,
    Result,
    Segment,
    WordReader,
    candidates,
    joined,
    seconds,
)
from asrkit.runtime.rewrite import applied, rewritten
from asrkit.runtime.word import Word
from asrkit.search import Search
from asrkit.text import Tokenizer

EMPTY = Grown([], 0)


class DecodingOptions(NamedTuple):
    """How log-probabilities become text.

    Fields:
        tokenizer: of the network's labels.
        search: from log-probabilities to a hypothesis.
        endpointer: where segments end; None for one segment.
        postprocess: rewrites the text of a segment.
    """

    tokenizer: Tokenizer
    search: Search
    endpointer: Endpointer | None = None
    postprocess: Callable[[str], str] | None = None

    @property
    def resets_encoder(self) -> bool:
        """Whether every segment begins as a new stream does."""
        return self.endpointer is not None and self.endpointer.reset_encoder


class Transcript:
    """The text of a stream so far. Where a segment ends, the search begins anew.

    Args:
        decoding: how log-probabilities become text.
        frame_ms: milliseconds of an encoder frame.
    """

    def __init__(self, decoding: DecodingOptions, frame_ms: int) -> None:
        self.decoding, self.frame_ms = decoding, frame_ms
        self.segments: list[Segment] = []  # only added to, as results share it
        self.closed: list[Word] = []  # words of the segments, likewise
        self.frame = 0  # encoder frames taken
        self.start = 0  # of them, before the open segment
        if decoding.endpointer is not None:
            self.endpoint = decoding.endpointer.start()
        self.begin()

    def begin(self) -> None:
        self.search = self.decoding.search.start()
        self.words = WordReader(self.decoding.tokenizer, self.frame_ms, self.frame)

    def accept(
        self, log_probs: Tensor, duration: float = math.inf, speech: Sequence[bool] = ()
    ) -> None:
        """Take (E, V) more frames.

        Args:
            log_probs: (E, V).
            duration: seconds of audio so far; the last frame may be longer.
            speech: whether a detector finds speech in each frame; in none after those given.
        """
        cuts: list[int] = []
        if self.decoding.endpointer is not None:
            quiet = self.decoding.search.quiet(log_probs)
            quiet = [a and not b for a, b in itertools.zip_longest(quiet, speech, fillvalue=False)]
            self.endpoint, cuts = self.decoding.endpointer.step(self.endpoint, quiet, self.frame_ms)
        for start, end in itertools.pairwise([0, *cuts]):
            self.advance(log_probs[start:end])
            self.close(duration)
        self.advance(log_probs[cuts[-1] if cuts else 0 :])

    def advance(self, log_probs: Tensor) -> None:
        self.search = self.decoding.search.step(self.search, log_probs)
        self.frame += len(log_probs)

    def close(self, duration: float) -> None:
        """End the open segment here, if there are words in it.

        Words of which a postprocess leaves nothing are done with, and the segment goes on.
        """
        end = min(duration, seconds(self.frame, self.frame_ms))
        search, tokenizer = self.decoding.search, self.decoding.tokenizer
        found = self.words(search.best(self.search), end)
        words = self.written(found)
        if words:
            nbest = candidates(search.nbest(self.search), tokenizer)
            start = seconds(self.start, self.frame_ms)
            self.segments.append(Segment(joined(words), words, start, end, nbest))
            self.closed += words
            self.start = self.frame
        if found:
            self.begin()

    def partial(self) -> Result:
        """What is known so far."""
        hypothesis = self.decoding.search.partial(self.search)
        last: Sequence[Word] = self.words.last_words(hypothesis, seconds(self.frame, self.frame_ms))
        if self.decoding.postprocess is None:
            return self.result(Grown(self.words.closed, len(self.words.closed)), last, False)
        return self.result(EMPTY, self.written([*self.words.closed, *last]), False)

    def finish(self, duration: float) -> Result:
        """The result if the stream ends here, after so many seconds."""
        self.close(duration)
        return self.result(EMPTY, (), True)

    def result(self, opened: Grown, last: Sequence[Word], is_final: bool) -> Result:
        closed, segments = (Grown(each, len(each)) for each in (self.closed, self.segments))
        return Result.shared(closed, opened, last, is_final, segments)

    def written(self, words: Sequence[Word]) -> tuple[Word, ...]:
        """The words of the open segment, as they are to be read."""
        if self.decoding.postprocess is not None and words:
            words = rewritten(words, applied(self.decoding.postprocess, joined(words)))
        return tuple(words)
