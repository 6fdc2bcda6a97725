"""A search that records its input and its results."""

from typing import Any

import torch
from torch import Tensor

from asrkit.search import NOTHING, Hypothesis, Ranked, Search


class Trace:
    """A search for one recording that records the head's frames and the hypotheses.

    A transcript restarts the search in each segment. A trace joins the segments again.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self._parts: list[Tensor] = []  # (e, V) each
        self._count = 0  # frames in `_parts`
        self._segments: list[tuple[int, Hypothesis]] = []  # number of frames before, hypothesis

    @property
    def frames(self) -> Tensor:
        """The frames (E, V) of the whole recording."""
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
        self._segments.append((self._count, NOTHING))
        return self.search.start()

    def step(self, state: Any, frames: Tensor) -> Any:
        self._parts.append(frames)
        self._count += len(frames)
        return self.search.step(state, frames)

    def quiet(self, frames: Tensor, state: Any = None) -> list[bool]:
        return self.search.quiet(frames, state)

    def ends(self, frames: Tensor, state: Any = None) -> list[float]:
        return self.search.ends(frames, state)

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
