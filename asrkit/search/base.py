"""A search's result, and the interface of every search."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from asrkit.search.fusion import Fusion


class Hypothesis(NamedTuple):
    """A token sequence with the encoder frames and the confidence of each token."""

    tokens: tuple[int, ...]
    starts: tuple[int, ...]  # first encoder frame of each token
    ends: tuple[int, ...]  # one past each token's last encoder frame
    confidences: tuple[float, ...]  # highest posterior of the token over its frames


NOTHING = Hypothesis((), (), (), ())


def checked(hypothesis: Hypothesis, vocab_size: int, blank: int, frame: int) -> Hypothesis:
    """Check that a hypothesis is possible with `vocab_size` labels and `frame` frames; return it.

    Raises:
        ValueError: if it is impossible.
    """
    tokens, starts, ends, confidences = hypothesis
    edges = [edge for pair in zip(starts, ends, strict=True) for edge in pair]
    if not (
        len(tokens) == len(starts) == len(confidences)
        and all(0 <= token < vocab_size and token != blank for token in tokens)
        and [0, *edges, frame] == sorted([0, *edges, frame])
        and all(0.0 <= each <= 2.0 for each in confidences)
    ):
        raise ValueError(f"a hypothesis does not fit {vocab_size} labels and {frame} frames")
    return hypothesis


class Ranked(NamedTuple):
    hypothesis: Hypothesis
    score: float  # natural logarithm of the probability, plus the scores of the fusion


class Search(Protocol):
    """A decoder of a stream, with explicit state; the split of the stream changes no result."""

    def start(self) -> Any:
        """Return the state before the first frame."""

    def step(self, state: Any, frames: Tensor) -> Any:
        """Return the state after (E, V) more frames of the head, any E."""

    def quiet(self, frames: Tensor, state: Any = None, after: Any = None) -> list[bool]:
        """Return for each frame whether no token is written in it: pauses consist of these.

        Args:
            frames: (E, V).
            state: state before the frames; the one of `start` if None.
            after: state after the frames, if it is known.
        """

    def ends(self, frames: Tensor, state: Any = None, after: Any = None) -> list[float]:
        """Return for each frame the probability of the label `end_of_turn`, if it is not None."""

    def partial(self, state: Any) -> Hypothesis:
        """Return the best hypothesis so far, if the stream continues."""

    def stable(self, state: Any) -> tuple[int, ...]:
        """Return the common prefix of all hypotheses, which later frames cannot change."""

    def best(self, state: Any) -> Hypothesis:
        """Return the best hypothesis if the stream ends here."""

    def nbest(self, state: Any) -> list[Ranked]:
        """Return all hypotheses if the stream ends here, the best first; [] for a single one."""


@runtime_checkable
class BatchSearch(Search, Protocol):
    """A search whose streams share its work, such as the calls of a transducer's joiner."""

    def step_all(self, states: Sequence[Any], frames: Sequence[Tensor]) -> list[Any]:
        """Return the state of each stream after (E, V) more frames, any E."""


@runtime_checkable
class FusingSearch(Protocol):
    """A search that adds the scores of a fusion to its hypotheses."""

    def plus(self, fusion: Fusion) -> Search:
        """Return a copy that adds the scores of one more fusion."""


@runtime_checkable
class SavableSearch(Protocol):
    """A search whose states can be saved."""

    Value: Any  # the type of `to_value`: a NamedTuple of numbers, texts and such NamedTuples

    def to_value(self, state: Any) -> Any:
        """Return the underivable parts of a state as plain data."""

    def from_value(self, value: Any, vocab_size: int, frames: int) -> Any:
        """Return the state of a value; ValueError if it does not fit `vocab_size` and `frames`."""


class OneResult:
    """The part of a search whose state has one `hypothesis`, which later frames only extend."""

    def partial(self, state: Any) -> Hypothesis:
        found: Hypothesis = state.hypothesis
        return found

    def best(self, state: Any) -> Hypothesis:
        return self.partial(state)

    def stable(self, state: Any) -> tuple[int, ...]:
        return self.partial(state).tokens

    def nbest(self, state: Any) -> list[Ranked]:
        """Return an empty list, because the search has only one result."""
        return []

    def to_value(self, state: Any) -> Any:
        return state
