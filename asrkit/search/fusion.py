"""Shallow fusion: scores of a language model or of hotwords, which a search adds at each token.

The state is explicit, as in the searches. Scores are natural logarithms.
"""

import math
from typing import Any, Protocol


class Fusion(Protocol):
    """The interface of a language model, or of hotwords, to a search."""

    ceiling: float  # upper bound of a token's score

    def start(self) -> Any:
        """Return the state of the empty text."""

    def step(self, state: Any, token: int) -> tuple[Any, float]:
        """Return the state after one more token, and the token's score."""

    def finish(self, state: Any) -> float:
        """Return the score of the text's end."""

    def identity(self) -> str:
        """Return a text that identifies the fusion, equal in every process."""


class Both:
    """The sum of any number of fusions; without one, all scores are 0."""

    def __init__(self, *parts: Fusion) -> None:
        self.parts, self.ceiling = parts, math.fsum(part.ceiling for part in parts)

    def start(self) -> tuple[Any, ...]:
        return tuple(part.start() for part in self.parts)

    def step(self, state: tuple[Any, ...], token: int) -> tuple[tuple[Any, ...], float]:
        if not self.parts:  # as in most searches, which call this often
            return state, 0.0
        pairs = zip(self.parts, state, strict=True)
        steps = [part.step(each, token) for part, each in pairs]
        return tuple(after for after, _ in steps), sum(score for _, score in steps)

    def finish(self, state: tuple[Any, ...]) -> float:
        return sum(part.finish(each) for part, each in zip(self.parts, state, strict=True))

    def identity(self) -> str:
        return "+".join(part.identity() for part in self.parts)
