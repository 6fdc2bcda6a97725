"""Shallow fusion: scores of a language model or of hotwords, which a search adds at each token.

The state is explicit, as in the searches. Scores are natural logarithms.
"""

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


class NoFusion:
    """The fusion of a search without a language model: all scores are 0."""

    ceiling = 0.0

    def start(self) -> None:
        return None

    def step(self, state: None, token: int) -> tuple[None, float]:
        return None, 0.0

    def finish(self, state: None) -> float:
        return 0.0

    def identity(self) -> str:
        return ""


class Both:
    """The sum of two fusions."""

    def __init__(self, first: Fusion, second: Fusion) -> None:
        self.first, self.second = first, second
        self.ceiling = first.ceiling + second.ceiling

    def start(self) -> tuple[Any, Any]:
        return self.first.start(), self.second.start()

    def step(self, state: tuple[Any, Any], token: int) -> tuple[tuple[Any, Any], float]:
        first, added = self.first.step(state[0], token)
        second, more = self.second.step(state[1], token)
        return (first, second), added + more

    def finish(self, state: tuple[Any, Any]) -> float:
        return self.first.finish(state[0]) + self.second.finish(state[1])

    def identity(self) -> str:
        return f"{self.first.identity()}+{self.second.identity()}"
