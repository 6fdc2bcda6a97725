"""What a recogniser answers."""

from typing import NamedTuple

from asrkit.model import FRAME_MS
from asrkit.search import Hypothesis
from asrkit.text import Tokenizer, decode


class Word(NamedTuple):
    text: str
    start: float  # seconds from the start of the stream
    end: float
    confidence: float  # 0 to 1, the lowest of its tokens'


class Result(NamedTuple):
    text: str
    words: tuple[Word, ...]
    is_final: bool


def seconds(frame: int) -> float:
    """When an encoder frame begins."""
    return frame * FRAME_MS / 1000


def result(hypothesis: Hypothesis, tokenizer: Tokenizer, is_final: bool) -> Result:
    """Text and timed words of a hypothesis."""
    words: list[Word] = []
    fresh = True  # the next piece starts a word
    for token, start, end, confidence in zip(*hypothesis, strict=True):
        piece = tokenizer.piece(token)
        fresh = fresh or piece.startswith(" ")
        text = piece.strip()
        if not text:
            continue
        if fresh:
            words.append(Word(text, seconds(start), seconds(end), confidence))
        else:
            last = words[-1]
            words[-1] = last._replace(
                text=last.text + text,
                end=seconds(end),
                confidence=min(last.confidence, confidence),
            )
        fresh = piece.endswith(" ")
    return Result(decode(tokenizer, hypothesis.tokens), tuple(words), is_final)
