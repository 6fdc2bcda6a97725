"""A search that records its input and its results."""

from typing import Any, NamedTuple

import numpy as np

from asrkit.search import NOTHING, Hypothesis, Ranked, Search


class Traced(NamedTuple):
    """The state of a search, with the emissions of its segment: (e, V) each."""

    state: Any
    parts: tuple[np.ndarray, ...] = ()

    @property
    def quiet(self) -> tuple[bool, ...]:
        return self.state.quiet

    @property
    def ends(self) -> tuple[float, ...]:
        return self.state.ends


class Trace(Search):
    """A search for one recording that records the head's emissions and the hypotheses.

    A transcript restarts the search in each segment. A trace joins the segments again.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self._segments: list[tuple[tuple[np.ndarray, ...], Hypothesis]] = []

    @property
    def emissions(self) -> np.ndarray:
        """The emissions (E, V) of the whole recording."""
        found = [part for parts, _ in self._segments for part in parts]
        return np.concatenate(found) if found else np.zeros((0, 0))

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

    def bound(self, head: Any, end_of_turn: int | None) -> "Trace":
        """Return this trace, which its caller reads; its search is bound already."""
        return self

    def start(self) -> Traced:
        self._segments.append(((), NOTHING))
        return Traced(self.search.start())

    def step(self, state: Traced, frames: np.ndarray) -> Traced:
        return Traced(self.search.step(state.state, frames), (*state.parts, frames))

    def quiet(self, frames: np.ndarray) -> tuple[bool, ...]:
        return self.search.quiet(frames)

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
