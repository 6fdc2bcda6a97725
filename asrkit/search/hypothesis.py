"""A search's result, and the interface of every search."""

from typing import Any, NamedTuple, Protocol

from torch import Tensor


class Hypothesis(NamedTuple):
    """A token sequence with the encoder frames and the confidence of each token."""

    tokens: tuple[int, ...]
    starts: tuple[int, ...]  # first encoder frame of each token
    ends: tuple[int, ...]  # one past each token's last encoder frame
    confidences: tuple[float, ...]  # highest posterior of the token over its frames


NOTHING = Hypothesis((), (), (), ())


class Ranked(NamedTuple):
    hypothesis: Hypothesis
    score: float  # natural logarithm of its probability, plus the scores of the fusion


class Search(Protocol):
    """A decoder of a stream: state in, state out, and the same result for every split of it."""

    def start(self) -> Any:
        """The state before the first frame."""

    def step(self, state: Any, log_probs: Tensor) -> Any:
        """The state after (E, V) more frames of log-probabilities, any E."""

    def quiet(self, log_probs: Tensor) -> list[bool]:
        """Of each of (E, V) frames, whether no token is the likeliest: pauses are made of these."""

    def partial(self, state: Any) -> Hypothesis:
        """The best hypothesis so far, while the stream goes on."""

    def stable(self, state: Any) -> tuple[int, ...]:
        """The tokens with which every hypothesis from here on begins, the best one too."""

    def best(self, state: Any) -> Hypothesis:
        """The best hypothesis if the stream ends here."""

    def nbest(self, state: Any) -> list[Ranked]:
        """All hypotheses if the stream ends here, the likeliest first; [] if the search has one."""
