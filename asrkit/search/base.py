"""A search's result, and the interface of every search."""

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
    """The hypothesis, if it may be one of so many labels and frames.

    Raises:
        ValueError: if not.
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
    score: float  # natural logarithm of its probability, plus the scores of the fusion


class Search(Protocol):
    """A decoder of a stream: state in, state out, and the same result for every split of it."""

    def start(self) -> Any:
        """The state before the first frame."""

    def step(self, state: Any, frames: Tensor) -> Any:
        """Return the state after (E, V) more frames of the head, any E."""

    def quiet(self, frames: Tensor, state: Any = None) -> list[bool]:
        """Return for each frame whether no token is written in it: pauses consist of these.

        Args:
            frames: (E, V).
            state: state before the frames; the one of `start` if None.
        """

    def partial(self, state: Any) -> Hypothesis:
        """The best hypothesis so far, while the stream goes on."""

    def stable(self, state: Any) -> tuple[int, ...]:
        """The tokens with which every hypothesis from here on begins, the best one too."""

    def best(self, state: Any) -> Hypothesis:
        """The best hypothesis if the stream ends here."""

    def nbest(self, state: Any) -> list[Ranked]:
        """All hypotheses if the stream ends here, the likeliest first; [] if the search has one."""


@runtime_checkable
class FusingSearch(Protocol):
    """A search that adds the scores of a fusion to its hypotheses."""

    def plus(self, fusion: Fusion) -> Search:
        """Return a copy that adds the scores of one more fusion."""


@runtime_checkable
class SavableSearch(Protocol):
    """A search whose states can be saved."""

    Value: Any  # the type of `to_value`: a NamedTuple of numbers, texts and others like it

    def to_value(self, state: Any) -> Any:
        """All of a state that cannot be derived, as plain data."""

    def from_value(self, value: Any, vocab_size: int, frames: int) -> Any:
        """The state of a value; ValueError if it cannot be one of so many labels and frames."""
