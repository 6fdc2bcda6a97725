"""What a recogniser answers."""

from typing import NamedTuple

from asrkit.model import FRAME_MS
from asrkit.search import Hypothesis
from asrkit.text import Tokenizer


class Word(NamedTuple):
    text: str
    start: float  # seconds from the start of the stream
    end: float
    confidence: float  # 0 to 1, the lowest of its tokens'


class Segment(NamedTuple):
    """What was said from one endpoint to the next; segments follow each other without a gap."""

    text: str
    words: tuple[Word, ...]
    start: float  # seconds from the start of the stream
    end: float


class Result(NamedTuple):
    text: str  # of all segments, and of what was said after them
    words: tuple[Word, ...]
    is_final: bool
    segments: tuple[Segment, ...] = ()  # those that ended: they cannot change any more

    @property
    def open_text(self) -> str:
        """What was said after the last segment, which may still change."""
        said = sum(len(segment.words) for segment in self.segments)
        return joined(self.words[said:])


class WordReader:
    """Timed words of a segment's hypotheses, one after another.

    Words that are complete and unchanged since the last hypothesis are not read again: the time
    for a partial result depends on what is new, not on how long the stream has lasted.

    Args:
        tokenizer: of the tokens.
        start: encoder frames of the stream before the segment.
    """

    def __init__(self, tokenizer: Tokenizer, start: int = 0) -> None:
        self.tokenizer, self.start = tokenizer, start
        self.closed: list[Word] = []
        self.prefix = Hypothesis((), (), (), ())  # the tokens of the closed words

    def __call__(self, hypothesis: Hypothesis) -> list[Word]:
        size = len(self.prefix.tokens)
        if part(hypothesis, 0, size) != self.prefix:  # the search thought better of it
            self.closed, size = [], 0
        words, last = read_words(part(hypothesis, size, None), self.tokenizer, self.start)
        self.closed += words[:-1]
        self.prefix = part(hypothesis, 0, size + last)
        return [*self.closed, *words[-1:]]


def joined(words: tuple[Word, ...] | list[Word]) -> str:
    return " ".join(word.text for word in words)


def part(hypothesis: Hypothesis, start: int, end: int | None) -> Hypothesis:
    """Some of the tokens, with all that is known of them."""
    tokens, starts, ends, confidences = hypothesis
    return Hypothesis(tokens[start:end], starts[start:end], ends[start:end], confidences[start:end])


def read_words(
    hypothesis: Hypothesis, tokenizer: Tokenizer, start: int = 0
) -> tuple[list[Word], int]:
    """The words of some tokens, and the index of the token that begins the last one.

    Args:
        hypothesis: the tokens.
        tokenizer: of the tokens.
        start: encoder frames of the stream before those that the hypothesis counts.
    """
    words: list[Word] = []
    last = 0
    fresh = True  # the next piece starts a word
    for i, (token, begin, end, confidence) in enumerate(zip(*hypothesis, strict=True)):
        piece = tokenizer.piece(token)
        fresh = fresh or piece.startswith(" ")
        text = piece.strip()
        if not text:
            continue
        if fresh:
            words.append(Word(text, seconds(start + begin), seconds(start + end), confidence))
            last = i
        else:
            word = words[-1]
            words[-1] = word._replace(
                text=word.text + text,
                end=seconds(start + end),
                confidence=min(word.confidence, confidence),
            )
        fresh = piece.endswith(" ")
    return words, last


def seconds(frame: int) -> float:
    """When an encoder frame begins."""
    return frame * FRAME_MS / 1000
