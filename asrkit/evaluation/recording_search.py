"""A search that records its input and its results."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from asrkit.search import NOTHING, Hypothesis, Ranked, Search


class Traced(NamedTuple):
    """The state of a search, with the frames of its segment: (e, V) each."""

    state: Any
    parts: tuple[Tensor, ...] = ()


class Trace:
    """A search for one recording that records the head's frames and the hypotheses.

    A transcript restarts the search in each segment. A trace joins the segments again.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self._segments: list[tuple[tuple[Tensor, ...], Hypothesis]] = []

    @property
    def frames(self) -> Tensor:
        """The frames (E, V) of the whole recording."""
        found = [part for parts, _ in self._segments for part in parts]
        return torch.cat(found) if found else torch.zeros(0, 0)

    @property
    def hypothesis(self) -> Hypothesis:
        """The tokens of all segments, with encoder frames of the recording."""
        found, offset = NOTHING, 0
        for parts, (tokens, starts, ends, confidences) in self._segments:
            found = Hypothesis(
                found.tokens + tokens,
                found.starts + tuple(offset + frame for frame in starts),
                found.ends + tuple(offset + frame for frame in ends),
                found.confidences + confidences,
            )
            offset += sum(map(len, parts))
        return found

    def start(self) -> Traced:
        self._segments.append(((), NOTHING))
        return Traced(self.search.start())

    def step(self, state: Traced, frames: Tensor) -> Traced:
        return Traced(self.search.step(state.state, frames), (*state.parts, frames))

    def step_all(self, states: Sequence[Traced], frames: Sequence[Tensor]) -> list[Traced]:
        return [self.step(*each) for each in zip(states, frames, strict=True)]

    def quiet(self, frames: Tensor, state: Any = None, after: Any = None) -> list[bool]:
        return self.search.quiet(frames, state.state, after.state)

    def ends(self, frames: Tensor, state: Any = None, after: Any = None) -> list[float]:
        return self.search.ends(frames, state.state, after.state)

    def partial(self, state: Traced) -> Hypothesis:
        return self.search.partial(state.state)

    def stable(self, state: Traced) -> tuple[int, ...]:
        return self.search.stable(state.state)

    def best(self, state: Traced) -> Hypothesis:
        found = self.search.best(state.state)
        self._segments[-1] = state.parts, found
        return found

    def nbest(self, state: Traced) -> list[Ranked]:
        return self.search.nbest(state.state)
