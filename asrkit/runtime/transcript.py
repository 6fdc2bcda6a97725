"""From the log-probabilities of one stream to its results, segment by segment."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from asrkit.runtime.endpoint import Endpointer
from asrkit.runtime.results import (
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


class Reading(NamedTuple):
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


class Transcript:
    """What was said in a stream so far. Where a segment ends, the search begins anew."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.segments: tuple[Segment, ...] = ()
        self.closed: tuple[Word, ...] = ()  # words of the segments
        self.frame = 0  # encoder frames taken
        self.start = 0  # of them, before the open segment
        if reading.endpointer is not None:
            self.endpoint = reading.endpointer.start()
        self.begin()

    def begin(self) -> None:
        self.search = self.reading.search.start()
        self.words = WordReader(self.reading.tokenizer, self.frame)

    def accept(
        self, log_probs: Tensor, heard: float = math.inf, speech: Sequence[bool] = ()
    ) -> None:
        """Take (E, V) more frames.

        Args:
            log_probs: (E, V).
            heard: seconds of audio so far; the last frame may be longer.
            speech: whether a detector hears speech in each frame; in none after those given.
        """
        cuts: list[int] = []
        if self.reading.endpointer is not None:
            quiet = self.reading.search.quiet(log_probs)
            quiet = [a and not b for a, b in itertools.zip_longest(quiet, speech, fillvalue=False)]
            self.endpoint, cuts = self.reading.endpointer.step(self.endpoint, quiet)
        for start, end in itertools.pairwise([0, *cuts]):
            self.advance(log_probs[start:end])
            self.close(heard)
        self.advance(log_probs[cuts[-1] if cuts else 0 :])

    def advance(self, log_probs: Tensor) -> None:
        self.search = self.reading.search.step(self.search, log_probs)
        self.frame += len(log_probs)

    def close(self, heard: float) -> None:
        """End the open segment here, if there are words in it.

        Words of which a postprocess leaves nothing are done with, and the segment goes on.
        """
        heard = min(heard, seconds(self.frame))
        search, tokenizer = self.reading.search, self.reading.tokenizer
        spoken = self.words(search.best(self.search), heard)
        words = self.written(spoken)
        if words:
            nbest = candidates(search.nbest(self.search), tokenizer)
            self.segments += (Segment(joined(words), words, seconds(self.start), heard, nbest),)
            self.closed += words
            self.start = self.frame
        if spoken:
            self.begin()

    def partial(self) -> Result:
        """What is known so far."""
        hypothesis = self.reading.search.partial(self.search)
        return self.result(self.written(self.words(hypothesis, seconds(self.frame))), False)

    def finish(self, heard: float) -> Result:
        """The result if the stream ends here, after so many seconds."""
        self.close(heard)
        return self.result((), True)

    def result(self, open_words: tuple[Word, ...], is_final: bool) -> Result:
        words = self.closed + open_words
        return Result(joined(words), words, is_final, self.segments)

    def written(self, words: Sequence[Word]) -> tuple[Word, ...]:
        """The words of the open segment, as they are to be read."""
        if self.reading.postprocess is not None and words:
            words = rewritten(words, applied(self.reading.postprocess, joined(words)))
        return tuple(words)
