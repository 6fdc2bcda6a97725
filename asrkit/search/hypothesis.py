"""What a search knows of a stream so far, and the interface of every search."""

from typing import Any, NamedTuple, Protocol

from torch import Tensor


class Hypothesis(NamedTuple):
    """A token sequence with the encoder frames and the confidence of each token."""

    tokens: tuple[int, ...]
    starts: tuple[int, ...]  # first encoder frame of each token
    ends: tuple[int, ...]  # the frame after its last
    confidences: tuple[float, ...]  # highest posterior of the token over its frames


NOTHING = Hypothesis((), (), (), ())


class Ranked(NamedTuple):
    hypothesis: Hypothesis
    score: float  # natural logarithm of its probability, with all that a language model adds


class Search(Protocol):
    """The same law as the network's: past in, past out, the same result for every split."""

    def start(self) -> Any:
        """The state of a stream that has not begun."""

    def step(self, state: Any, log_probs: Tensor) -> Any:
        """The state after (E, V) more frames, any E."""

    def quiet(self, log_probs: Tensor) -> list[bool]:
        """Of each of (E, V) frames, whether no token is the likeliest: pauses are made of these."""

    def partial(self, state: Any) -> Hypothesis:
        """The best hypothesis so far, while the stream goes on."""

    def best(self, state: Any) -> Hypothesis:
        """The best hypothesis if the stream ends here; the state does not change."""

    def nbest(self, state: Any) -> list[Ranked]:
        """All hypotheses if the stream ends here, the likeliest first; none of a single path."""
