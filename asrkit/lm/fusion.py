"""Language models of words or tokens as a search takes them (`search.fusion`): token by token."""

from collections.abc import Sequence
from typing import Any, Protocol

LIMIT = 20.0  # of weights and bonuses: what they add to a score fits into a float


class LanguageModel(Protocol):
    """A model of words, or of tokens as words. Logarithms are natural."""

    def start(self) -> Any:
        """The state at the begin of a sentence."""

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        """The log-probability of a word in a state, and the state after it."""

    def finish(self, state: Any) -> float:
        """The log-probability that the sentence ends in a state."""

    def knows(self, word: str) -> bool:
        """Whether a word is in the model by itself, and not as an unknown one."""

    def vocabulary(self) -> list[str] | None:
        """The words that can be in a text; None if the model does not tell."""


class Weighted:
    """A language model with its weight and its bonus.

    Args:
        model: of words or of tokens.
        weight: of its logarithms.
        bonus: for each word or token, because a model prefers few.

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
        """The context after a word, and what the word adds."""
        log_prob, context = self.model.score(context, word)
        return context, self.weight * log_prob + self.bonus

    def finish(self, context: Any) -> float:
        """What the end of the sentence adds: it is no word and has no bonus."""
        return self.weight * self.model.finish(context)


class TokenFusion:
    """A model of tokens, asked at every token.

    Args:
        weighted: the model; its words are the pieces as `spelled`.
        pieces: what each token adds to the text, by id; anything for the blank.

    Raises:
        ValueError: if the model knows none of the tokens.
    """

    def __init__(self, weighted: Weighted, pieces: Sequence[str]) -> None:
        self.weighted, self.ceiling = weighted, max(0.0, weighted.bonus)
        self.words = list(map(spelled, pieces))
        if not any(map(weighted.model.knows, self.words)):
            known = examples(weighted.model)
            raise ValueError(f"it is of {known}, not of the tokens {', '.join(self.words[1:4])}, …")

    def start(self) -> Any:
        return self.weighted.model.start()

    def step(self, state: Any, token: int) -> tuple[Any, float]:
        return self.weighted.score(state, self.words[token])

    def finish(self, state: Any) -> float:
        return self.weighted.finish(state)


class WordFusion:
    """A model of words, asked when a word is complete: when a space or the end of the text comes.

    A state is the context of complete words, and what there is of the next word, which adds nothing
    yet.

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

    def scored(self, context: Any, words: list[str]) -> tuple[Any, float]:
        """The context after these words, and what they add; "" is between two spaces."""
        total = 0.0
        for word in words:
            if word:
                context, added = self.weighted.score(context, word)
                total += added
        return context, total


def spelled(piece: str) -> str:
    """A piece as a word of a model of tokens."""
    return piece.replace(" ", "▁")


def examples(model: LanguageModel) -> str:
    """A few of the model's words, for a message."""
    words = model.vocabulary()
    if words is None:
        return "other words"
    return ", ".join(map(repr, words[:3])) or "no words"
