"""What a search adds to the score of a text, token by token: a language model, hotwords, or both.

The law is that of the searches: past in, past out. Scores are natural logarithms.
"""

from typing import Any, Protocol


class Fusion(Protocol):
    """A language model as a search sees it."""

    ceiling: float  # no token adds more

    def start(self) -> Any:
        """The state of a text that has not begun."""

    def step(self, state: Any, token: int) -> tuple[Any, float]:
        """The state after one more token, and what it adds."""

    def finish(self, state: Any) -> float:
        """What is added if the text ends here."""


class NoFusion:
    """No language model."""

    ceiling = 0.0

    def start(self) -> None:
        return None

    def step(self, state: None, token: int) -> tuple[None, float]:
        return None, 0.0

    def finish(self, state: None) -> float:
        return 0.0


class Both:
    """Two that add up."""

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
