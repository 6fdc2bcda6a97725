"""Words with times: read from tokens, mapped to a rewritten text, joined."""

import math
import statistics
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from asrkit.search import NOTHING, Hypothesis
from asrkit.text import Tokenizer, spoken
from asrkit.text.graphemes import divides_units, spaced_units, units

# The first token of a word comes after the word's start, and the last before its end, so words are
# longer than their tokens by LEAD and TRAIL. Measured on sequences of digits with known edges: nine
# of ten begin at least LEAD before their first token, half end TRAIL or more after their last.
LEAD, TRAIL = 0.06, 0.04  # seconds

# Mean confidence below which a text is far from what its model knows. With small-en-alnum none of
# 340 texts of its kind is below (an4, two words or more), and 200 of 211 texts of other kinds are.
FAR = 0.7

RECENT = 32  # tokens of a hypothesis that are read again: searches rarely change older ones


class Word(NamedTuple):
    """A word, or a unit of a script without spaces: a character with its combining marks."""

    text: str
    start: float  # seconds from the start of the session
    end: float
    confidence: float  # 0 to 1, product of the tokens' confidences

    @property
    def spaced(self) -> bool:
        """Whether a space precedes the word in the text."""
        return True

    def as_json(self) -> dict[str, Any]:
        """Return the fields as a dict; `spaced` only if it is false."""
        return self._asdict() | ({} if self.spaced else {"spaced": False})

    def with_space(self, spaced: bool) -> "Word":
        """Return the word with or without a space before it."""
        return (Word if spaced else AttachedWord)(*self)


class AttachedWord(Word):
    """A word without a space before it, in a script without spaces."""

    __slots__ = ()

    @property
    def spaced(self) -> bool:
        return False


def joined(words: Sequence[Word]) -> str:
    """Return the text of words."""
    return "".join(f" {w.text}" if w.spaced and i else w.text for i, w in enumerate(words))


def confidence_of(words: Sequence[Word]) -> float:
    """Return the mean confidence of words; 0 without words."""
    return sum(word.confidence for word in words) / max(1, len(words))


def sureness(words: Sequence[Word]) -> float | None:
    """Return the mean confidence of a text; None for one word, which says too little."""
    return confidence_of(words) if len(words) > 1 else None


def far_from_model(texts: Sequence[float | None]) -> str | None:
    """Return a line about the texts below FAR, by the `sureness` of each, or None."""
    far = [mean for mean in texts if mean is not None and mean < FAR]
    if not far:
        return None
    where = f" in {len(far)} of {len(texts)} recordings" if len(texts) > 1 else ""
    return (
        f"mean confidence {100 * statistics.fmean(far):.0f} %{where}: the model may not know this "
        "language, these words or this sound"
    )


def in_units(words: Sequence[Word]) -> list[Word]:
    """Divide words of labels of several units, so that each unit is a word."""
    return [unit for word in words for unit in shared([word], units(word.text))]


class Clock(NamedTuple):
    """The times of a stream's encoder frames in its session."""

    frame_ms: int  # milliseconds of a frame
    lead_ms: int = 0  # from the start of the first frame to the stream's first sample
    before_ms: int = 0  # of the session before the stream's first sample

    def seconds(self, frame: int) -> float:
        """Return the start of a frame in seconds of the session."""
        return (self.before_ms + max(0, frame * self.frame_ms - self.lead_ms)) / 1000


class WordReader:
    """Reads the timed words of a segment's hypotheses, one hypothesis after another.

    In scripts without spaces each label that begins a unit begins a word, at the label's time.

    All but RECENT tokens are read once, unless the search changes them. So the time for a partial
    result depends neither on the length of the stream nor on that of its words.

    Args:
        clock: times of the stream's frames.
        start: encoder frames of the stream before the segment.
    """

    def __init__(self, tokenizer: Tokenizer, clock: Clock, start: int = 0) -> None:
        self.tokenizer, self.clock, self.start = tokenizer, clock, start
        self.pieces: dict[int, str] = {}  # each chunk reads the latest tokens again
        self.closed: list[Word] = []
        self.end = self.seconds(0)  # end of the last closed word's tokens
        self.last: list[Word] = []  # the next word, which the next token may extend
        self.prefix = NOTHING  # the tokens of all words in `closed`
        self.recent: tuple[Hypothesis, float, list[Word]] | None = None  # the last call's result

    def __call__(self, hypothesis: Hypothesis, duration: float = math.inf) -> list[Word]:
        """Return the words of a hypothesis; no word ends after `duration` seconds of audio."""
        last = self.last_words(hypothesis, duration)  # first, because it may add closed words
        return [*self.closed, *last]

    def last_words(self, hypothesis: Hypothesis, duration: float = math.inf) -> list[Word]:
        """Return the words that are not in `closed`; this call may move some there.

        `closed` only grows; if the search changes one of its words, a new list replaces it.
        """
        if self.recent is not None and self.recent[0] is hypothesis:
            _, before, words = self.recent
            if duration >= before and (not words or words[-1].end < before):
                return words  # the end of the audio did not and does not limit the last word
        size = len(self.prefix.tokens)
        if part(hypothesis, 0, size) != self.prefix:  # the search changed closed words
            self.closed, self.end, self.last = [], self.seconds(0), []
            self.prefix, size = NOTHING, 0
        if len(hypothesis.tokens) - RECENT > size:
            prefix = part(hypothesis, 0, len(hypothesis.tokens) - RECENT)
            words = self.read(prefix)
            self.closed += widened(words, self.end, duration)[:-1]
            self.end = words[-2].end if len(words) > 1 else self.end
            self.last, self.prefix = words[-1:], prefix
        last = widened(self.read(hypothesis), self.end, duration)
        self.recent = hypothesis, duration, last
        return last

    def read(self, hypothesis: Hypothesis) -> list[Word]:
        """Return the words after the closed ones, with the times of their tokens."""
        words, size, piece_of = list(self.last), len(self.prefix.tokens), self.piece_of
        # Whether the next piece starts a word.
        before = filter(None, map(piece_of, reversed(hypothesis.tokens[:size])))
        fresh = not words or next(before, "").endswith(" ")
        for token, begin, end, confidence in zip(*part(hypothesis, size, None), strict=True):
            piece = piece_of(token)
            fresh = fresh or piece.startswith(" ")
            text = piece.strip()
            if not text:
                continue
            if fresh or divides_units(words[-1].text, text):
                times = self.seconds(begin), self.seconds(end)
                words.append(Word(text, *times, confidence).with_space(fresh))
            else:  # the piece extends the word
                word = words[-1]
                words[-1] = word._replace(
                    text=word.text + text,
                    end=self.seconds(end),
                    confidence=word.confidence * confidence,
                )
            fresh = piece.endswith(" ")
        return words

    def piece_of(self, token: int) -> str:
        if token not in self.pieces:
            self.pieces[token] = spoken(self.tokenizer.piece(token))
        return self.pieces[token]

    def seconds(self, frame: int) -> float:
        """Return the time of a frame of the segment, in seconds from the start of the session."""
        return self.clock.seconds(self.start + frame)


def widened(words: Sequence[Word], before: float, duration: float) -> list[Word]:
    """Extend words from the times of their tokens to those of speech, without overlap.

    Args:
        words: words with the times of their tokens.
        before: end of the tokens of the previous word.
        duration: seconds of audio.
    """
    ends = [before, *(word.end for word in words)]
    starts = [max(round(w.start - LEAD, 3), end) for w, end in zip(words, ends, strict=False)]
    limits = [*starts, duration][1:]
    return [
        word._replace(start=start, end=min(round(word.end + TRAIL, 3), limit))
        for word, start, limit in zip(words, starts, limits, strict=True)
    ]


def part(hypothesis: Hypothesis, start: int, end: int | None) -> Hypothesis:
    """Return a range of the tokens with their other fields."""
    tokens, starts, ends, confidences = hypothesis
    return Hypothesis(tokens[start:end], starts[start:end], ends[start:end], confidences[start:end])


def rewritten(words: Sequence[Word], text: str) -> list[Word]:
    """Return the words of a text that was made from these words, with times.

    Unchanged words, and words that replace an equal number of words, have the times of the old
    ones. Other words share the time of the words that they replace, in equal parts. Added words
    are placed in between.
    """
    if text.split() == joined(words).split():
        return list(words)
    marked = spaced_units(text)
    new, words = [unit.strip() for unit in marked], in_units(words)
    placed: list[Word] = []
    matcher = SequenceMatcher(None, [word.text for word in words], new, autojunk=False)
    for _, start, end, first, last in matcher.get_opcodes():
        before, after = words[start:end], new[first:last]
        if len(before) == len(after):
            placed += [word._replace(text=text) for word, text in zip(before, after, strict=True)]
        elif before:
            placed += shared(before, after)
        else:
            near = words[max(0, start - 1)]
            at = near.end if start else near.start
            placed += [Word(text, at, at, near.confidence) for text in after]
    return [word.with_space(unit[0] == " ") for word, unit in zip(placed, marked, strict=True)]


def shared(before: Sequence[Word], after: Sequence[str]) -> list[Word]:
    """Divide the time of words equally among others, with the lowest confidence of the former."""
    if len(before) == len(after) == 1:
        return [before[0]._replace(text=after[0])]
    start, length = before[0].start, before[-1].end - before[0].start
    confidence = min(word.confidence for word in before)
    edges = [round(start + length * i / max(1, len(after)), 3) for i in range(len(after) + 1)]
    return [Word(text, edges[i], edges[i + 1], confidence) for i, text in enumerate(after)]
