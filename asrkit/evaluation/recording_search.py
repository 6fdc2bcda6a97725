"""A search that keeps what it read and what it found."""

from typing import Any

import torch
from torch import Tensor

from asrkit.search import NOTHING, Hypothesis, Ranked, Search


class Trace:
    """A search for one recording, which keeps the log-probabilities and the hypotheses.

    A transcript starts a search anew in each segment; here the segments are put together again.

    Args:
        search: whose answers these are.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self._parts: list[Tensor] = []  # each (e, V)
        self._frames = 0  # in them
        self._segments: list[tuple[int, Hypothesis]] = []  # with the frames before each

    @property
    def log_probs(self) -> Tensor:
        """(E, V), of the whole recording."""
        return torch.cat(self._parts) if self._parts else torch.zeros(0, 0)

    @property
    def hypothesis(self) -> Hypothesis:
        """The tokens of all segments, with encoder frames of the recording."""
        found = NOTHING
        for offset, (tokens, starts, ends, confidences) in self._segments:
            found = Hypothesis(
                found.tokens + tokens,
                found.starts + tuple(offset + frame for frame in starts),
                found.ends + tuple(offset + frame for frame in ends),
                found.confidences + confidences,
            )
        return found

    def start(self) -> Any:
        self._segments.append((self._frames, NOTHING))
        return self.search.start()

    def step(self, state: Any, log_probs: Tensor) -> Any:
        self._parts.append(log_probs)
        self._frames += len(log_probs)
        return self.search.step(state, log_probs)

    def quiet(self, log_probs: Tensor) -> list[bool]:
        return self.search.quiet(log_probs)

    def partial(self, state: Any) -> Hypothesis:
        return self.search.partial(state)

    def stable(self, state: Any) -> tuple[int, ...]:
        return self.search.stable(state)

    def best(self, state: Any) -> Hypothesis:
        offset, _ = self._segments[-1]
        self._segments[-1] = offset, self.search.best(state)
        return self._segments[-1][1]

    def nbest(self, state: Any) -> list[Ranked]:
        return self.search.nbest(state)
