"""Shallow fusion of language models of words or of tokens (see `search.fusion`)."""

from collections.abc import Sequence
from typing import Any, Protocol

PROBED = 512  # words by whose scores a model is told from others
LIMIT = 20.0  # largest weight or bonus: e to what they add to a score fits into a float


class LanguageModel(Protocol):
    """A model of words, or of tokens as words. Logarithms are natural."""

    def start(self) -> Any:
        """The state at the start of a sentence."""

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        """The log-probability of a word in a state, and the state after it."""

    def finish(self, state: Any) -> float:
        """The log-probability that the sentence ends in a state."""

    def has_word(self, word: str) -> bool:
        """Whether a word is in the vocabulary, rather than scored as <unk>."""

    def vocabulary(self) -> list[str] | None:
        """The words that can be in a text; None if the model cannot list them."""


class Weighted:
    """A language model with its weight and its bonus.

    Args:
        model: of words or of tokens.
        weight: factor of its log-probabilities.
        bonus: added for each word or token, because a model prefers short texts.

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
        """The context after a word, and the word's score."""
        log_prob, context = self.model.score(context, word)
        return context, self.weight * log_prob + self.bonus

    def finish(self, context: Any) -> float:
        """The score of the sentence's end, which is no word and has no bonus."""
        return self.weight * self.model.finish(context)

    def identity(self, pieces: Sequence[str]) -> str:
        """The scores of a text of some words that the model knows, or else of these pieces."""
        context, scores = self.model.start(), []
        for word in (self.model.vocabulary() or pieces)[:PROBED]:
            context, score = self.score(context, word)
            scores.append(score)
        return repr([self.weight, self.bonus, *scores, self.finish(context)])


class TokenFusion:
    """The fusion of a model of tokens: every token has a score.

    Args:
        weighted: the model; its words are the pieces, as by `as_word`.
        pieces: what each token adds to the text, by id; anything for the blank.

    Raises:
        ValueError: if no token is a word of the model.
    """

    def __init__(self, weighted: Weighted, pieces: Sequence[str]) -> None:
        self.weighted, self.ceiling = weighted, max(0.0, weighted.bonus)
        self.words = list(map(as_word, pieces))
        if not any(map(weighted.model.has_word, self.words)):
            known = examples(weighted.model)
            raise ValueError(f"it is of {known}, not of the tokens {', '.join(self.words[1:4])}, …")

    def start(self) -> Any:
        return self.weighted.model.start()

    def step(self, state: Any, token: int) -> tuple[Any, float]:
        return self.weighted.score(state, self.words[token])

    def finish(self, state: Any) -> float:
        return self.weighted.finish(state)

    def identity(self) -> str:
        return f"tokens {self.weighted.identity(self.words)}"


class WordFusion:
    """The fusion of a model of words: a word is scored at the space, or the end, that follows it.

    A state is the context after the complete words, and the letters of the word that is not.

    Args:
        weighted: the model.
        pieces: what each token adds to the text, by id; anything for the blank.

    Raises:
        ValueError: if no word of the model can be written with the pieces.
    """

    def __init__(self, weighted: Weighted, pieces: Sequence[str]) -> None:
        self.weighted, self.pieces = weighted, pieces
        # A piece completes as many words as it has spaces.
        self.ceiling = max(0.0, weighted.bonus) * max(piece.count(" ") for piece in pieces)
        letters, words = set("".join(pieces)), weighted.model.vocabulary()
        if words is not None and not any(map(letters.issuperset, words)):
            known = examples(weighted.model)
            raise ValueError(f"its words, such as {known}, cannot be written in the model's tokens")

    def start(self) -> tuple[Any, str]:
        return self.weighted.model.start(), ""

    def step(self, state: tuple[Any, str], token: int) -> tuple[tuple[Any, str], float]:
        context, begun = state
        piece = self.pieces[token]
        if " " not in piece:
            return (context, begun + piece), 0.0
        *words, begun = (begun + piece).split(" ")
        context, added = self.scored(context, words)
        return (context, begun), added

    def finish(self, state: tuple[Any, str]) -> float:
        context, begun = state
        context, added = self.scored(context, [begun])
        return added + self.weighted.finish(context)

    def identity(self) -> str:
        return f"words {self.weighted.identity(self.pieces)}"

    def scored(self, context: Any, words: list[str]) -> tuple[Any, float]:
        """The context after these words, and the sum of their scores; "" is no word."""
        total = 0.0
        for word in words:
            if word:
                context, added = self.weighted.score(context, word)
                total += added
        return context, total


def as_word(piece: str) -> str:
    """A piece as a word of a model of tokens: ▁ for its spaces."""
    return piece.replace(" ", "▁")


def examples(model: LanguageModel) -> str:
    """A few of the model's words, for an error message."""
    words = model.vocabulary()
    if words is None:
        return "other words"
    return ", ".join(map(repr, words[:3])) or "no words"
