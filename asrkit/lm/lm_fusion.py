"""Shallow fusion with language models of words or of tokens (see `search.fusion`)."""

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any, Protocol

WORDS_MENTIONED = 0.01  # smallest reported share of words that cannot be recognised
TOKENS_MENTIONED = 0.1  # smallest reported share of tokens that a model lacks
Divide = Callable[[str], tuple[Sequence[str], str]]
LIMIT = 20.0  # largest weight or bonus: exp() of the resulting scores fits into a float


class LanguageModel(Protocol):
    """A model of words, or of tokens as words. Logarithms are natural."""

    @property
    def sha256(self) -> str:
        """A hash of everything that determines the scores."""

    def start(self) -> Any:
        """Return the state at the start of a sentence."""

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        """Return the log-probability of a word in a state, and the next state."""

    def finish(self, state: Any) -> float:
        """Return the log-probability that the sentence ends in a state."""

    def has_word(self, word: str) -> bool:
        """Return whether a word is in the vocabulary; other words are scored as <unk>."""

    def words_in_part(self) -> list[str] | None:
        """Return some thousands of words of the vocabulary; None if the model has no list."""


class Weighted:
    """A language model with its weight and its bonus.

    Args:
        weight: factor of the model's log-probabilities.
        bonus: score added for each word or token, because a model prefers short texts.

    Raises:
        ValueError: for a weight or a bonus out of range.
    """

    def __init__(self, model: LanguageModel, weight: float, bonus: float) -> None:
        if not 0.0 <= weight <= LIMIT:
            raise ValueError(f"the weight must be between 0 and {LIMIT:g}, got {weight:g}")
        if not -LIMIT <= bonus <= LIMIT:
            raise ValueError(f"the bonus must be between -{LIMIT:g} and {LIMIT:g}, got {bonus:g}")
        self.model, self.weight, self.bonus = model, weight, bonus

    def score(self, context: Any, word: str) -> tuple[Any, float]:
        """Return the context after a word, and the word's score."""
        log_prob, context = self.model.score(context, word)
        return context, self.weight * log_prob + self.bonus

    def finish(self, context: Any) -> float:
        """Return the score of the sentence's end, which has no bonus because it is not a word."""
        return self.weight * self.model.finish(context)

    def identity(self) -> str:
        """Return the weight, the bonus and a hash of the model as text."""
        return repr([self.weight, self.bonus, self.model.sha256])


class TokenFusion:
    """The fusion of a model of tokens: every token has a score.

    Args:
        weighted: the model; its words are the pieces, spelled as by `as_word`.
        pieces: text of each token, by id; the blank's is ignored.

    Raises:
        ValueError: if no token is a word of the model.
    """

    def __init__(self, weighted: Weighted, pieces: Sequence[str]) -> None:
        self.weighted, self.ceiling = weighted, max(0.0, weighted.bonus)
        self.words = list(map(as_word, pieces))
        if not any(map(weighted.model.has_word, self.words)):
            words = weighted.model.words_in_part()
            known = "others" if words is None else examples(words)
            raise ValueError(
                f"its words are {known}, expected the tokens {', '.join(self.words[1:4])}, …"
            )

    def misfit(self) -> str:
        """Describe tokens that the model lacks; "" if they are few."""
        tokens = self.words[1:]
        odd = [token for token in tokens if not self.weighted.model.has_word(token)]
        if len(odd) < TOKENS_MENTIONED * len(tokens):
            return ""
        return f"it lacks {len(odd)} of the {len(tokens)} tokens, such as {examples(odd)}"

    def start(self) -> Any:
        return self.weighted.model.start()

    def step(self, state: Any, token: int) -> tuple[Any, float]:
        return self.weighted.score(state, self.words[token])

    def finish(self, state: Any) -> float:
        return self.weighted.finish(state)

    def identity(self) -> str:
        return f"tokens {self.weighted.identity()}"


class WordFusion:
    """The fusion of a model of words: a word is scored at the following space or end of the text.

    In scripts without spaces the words are units, which are scored at the start of the next one.
    A state is the context after the complete words, and the letters of the incomplete word.

    Args:
        pieces: text of each token, by id; the blank's is ignored.
        divide: function that returns the complete words of a text, and the incomplete one.

    Raises:
        ValueError: if no word of the model can be written with the pieces.
    """

    def __init__(self, weighted: Weighted, pieces: Sequence[str], divide: Divide) -> None:
        self.weighted, self.pieces, self.divide = weighted, pieces, divide
        # A piece completes one word per space, and where units end without a space, one per unit.
        spaced = not any(divide(f"a{part}a")[0] for piece in pieces for part in piece.split())
        most = max(p.count(" ") + (0 if spaced else len(divide(f"{p} ")[0])) for p in pieces)
        self.ceiling = max(0.0, weighted.bonus) * most
        known, longest = {*pieces} - {""}, max(map(len, pieces))
        self.is_written = partial(is_written, pieces=known, longest=longest)
        words = weighted.model.words_in_part()
        if words is not None and not any(map(self.is_recognisable, words)):
            raise ValueError(self.misfit())

    def misfit(self) -> str:
        """Describe words of the model that cannot be recognised; "" if they are few."""
        words = self.weighted.model.words_in_part()
        if words is None:
            return "its words cannot be listed, so their spelling is not checked: load an ARPA file"
        odd = [word for word in words if not self.is_recognisable(word)]
        if words and len(odd) < max(1, WORDS_MENTIONED * len(words)):
            return ""
        share = f"{100 * len(odd) / len(words):.0f} % of " if len(odd) < len(words) else ""
        return (
            f"{share}its words, such as {examples(odd)}, cannot be written with the recogniser's "
            "tokens as one word: estimate a model by asrkit ngram --model, which spells and "
            "divides texts as the recogniser does"
        )

    def is_recognisable(self, word: str) -> bool:
        """Return whether a text can have a word: its tokens write it, and it is not divided."""
        return self.is_written(word) and not self.divide(word)[0]

    def start(self) -> tuple[Any, str]:
        return self.weighted.model.start(), ""

    def step(self, state: tuple[Any, str], token: int) -> tuple[tuple[Any, str], float]:
        context, begun = state
        words, begun = self.divide(begun + self.pieces[token])
        context, added = self.scored(context, words)
        return (context, begun), added

    def finish(self, state: tuple[Any, str]) -> float:
        context, begun = state
        context, added = self.scored(context, [begun] if begun else [])
        return added + self.weighted.finish(context)

    def identity(self) -> str:
        return f"words {self.weighted.identity()}"

    def scored(self, context: Any, words: Sequence[str]) -> tuple[Any, float]:
        """Return the context after these words, and the sum of their scores."""
        total = 0.0
        for word in words:
            context, added = self.weighted.score(context, word)
            total += added
        return context, total


def as_word(piece: str) -> str:
    """Spell a piece as a word of a model of tokens: ▁ for its spaces."""
    return piece.replace(" ", "▁")


def is_written(word: str, pieces: Container[str], longest: int) -> bool:
    """Return whether a word is a sequence of pieces, with or without a space before it.

    Args:
        longest: characters of the longest piece.
    """
    for text in (word, f" {word}"):
        ends = [0]  # ends of the prefixes that are sequences of pieces
        for end in range(1, len(text) + 1):
            if any(end - start <= longest and text[start:end] in pieces for start in ends):
                ends.append(end)
        if ends[-1] == len(text):
            return True
    return False


def examples(words: Sequence[str]) -> str:
    """Format a few words for a message."""
    return ", ".join(map(repr, words[:3])) or "no words"
