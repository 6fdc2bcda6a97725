"""A search's result, and the bases of all searches and of CTC's."""

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from asrkit.errors import UserError
from asrkit.search.fusion import Fusion

NEVER = -1e4  # log-probability of a label that no search writes


class Hypothesis(NamedTuple):
    """A token sequence with the encoder frames and the confidence of each token."""

    tokens: tuple[int, ...]
    starts: tuple[int, ...]  # first encoder frame of each token
    ends: tuple[int, ...]  # one past each token's last encoder frame
    confidences: tuple[float, ...]  # highest posterior of the token over its frames


NOTHING = Hypothesis((), (), (), ())


class Ranked(NamedTuple):
    hypothesis: Hypothesis
    score: float  # natural logarithm of the probability, plus the scores of the fusion


class Search:
    """A decoder of a stream, with explicit state; the split of the stream changes no result.

    A kind defines `start`, and one of `step` and `step_all`. A state has two fields for the frames
    of its last step: `quiet`, whether no token is written in a frame, as in pauses; and `ends`, the
    probability of the label `end_of_turn`. The methods here are those of a search with one
    hypothesis, the state's `hypothesis`, which later frames only extend.

    Attributes:
        blank: label of the blank.
        takes_fusion: whether the search can add the scores of a fusion.
        head: predictor and joiner that a transducer's search calls.
        end_of_turn: label that marks ends of turns; None for a network without one.
        Value: type of `to_value`, a NamedTuple of numbers, texts and such NamedTuples; None if the
            states cannot be saved.
    """

    blank = 0
    takes_fusion = False
    head: Any = None
    end_of_turn: int | None = None
    Value: Any = None
    OPTIONS: tuple[str, ...] = ("blank", "blank_penalty", "end_of_turn")  # attributes, if any

    def bound(self, head: Any, end_of_turn: int | None) -> "Search":
        """Return the search for a network, whose attributes replace the search's, if not None."""
        head = self.head if head is None else head
        end_of_turn = self.end_of_turn if end_of_turn is None else end_of_turn
        if (head, end_of_turn) == (self.head, self.end_of_turn):
            return self
        search = copy.copy(self)
        search.head, search.end_of_turn = head, end_of_turn
        return search

    def identity(self) -> dict[str, str]:
        """Return the kind and the options of the search, equal in every process."""
        values = {name: getattr(self, name, None) for name in self.OPTIONS}
        texts = {name: str(value) for name, value in values.items() if value is not None}
        return {"kind": type(self).__name__, **texts}

    def plus(self, fusion: Fusion) -> "Search":
        """Return a copy that adds the scores of one more fusion.

        Raises:
            UserError: if the search cannot.
        """
        raise UserError("this search cannot use hotwords; choose search prefix_beam")

    def start(self) -> Any:
        """Return the state before the first frame."""
        raise NotImplementedError

    def step(self, state: Any, frames: np.ndarray) -> Any:
        """Return the state after (E, V) more emissions of the head, any E."""
        return self.step_all([state], [frames])[0]

    def step_all(self, states: Sequence[Any], frames: Sequence[np.ndarray]) -> list[Any]:
        """Return the states of streams after (E, V) more frames; E may differ between streams."""
        return [self.step(*each) for each in zip(states, frames, strict=True)]

    def quiet(self, frames: np.ndarray) -> tuple[bool, ...]:
        """Return for each of a stream's first frames (E, V) whether no token is written in it."""
        return self.step(self.start(), frames).quiet

    def partial(self, state: Any) -> Hypothesis:
        """Return the best hypothesis so far, if the stream continues."""
        return state.hypothesis

    def stable(self, state: Any) -> tuple[int, ...]:
        """Return the common prefix of all hypotheses, which later frames cannot change."""
        return self.partial(state).tokens

    def best(self, state: Any) -> Hypothesis:
        """Return the best hypothesis if the stream ends here."""
        return self.partial(state)

    def nbest(self, state: Any) -> list[Ranked]:
        """Return all hypotheses if the stream ends here, the best first; [] for a single one."""
        return []

    def to_value(self, state: Any) -> Any:
        """Return the underivable parts of a state as plain data."""
        return state._replace(quiet=(), ends=())

    def from_value(self, value: Any) -> Any:
        """Return the state of a value, in the process that restores it."""
        return value


class CtcSearch(Search):
    """A search that reads log-probabilities, and never writes the label of ends of turns."""

    blank_penalty = 0.0

    def readable(self, log_probs: np.ndarray) -> np.ndarray:
        """Return the log-probabilities (E, V) from which the search chooses.

        The blank has the share of the label of ends of turns, too.
        """
        blank, label = self.blank, self.end_of_turn
        if label is not None:
            both = np.logaddexp(log_probs[:, blank], log_probs[:, label])
            log_probs = log_probs.copy()
            log_probs[:, blank], log_probs[:, label] = both, NEVER
        return penalize_blank(log_probs, blank, self.blank_penalty)

    def quiet(self, frames: np.ndarray) -> tuple[bool, ...]:
        return tuple((self.readable(frames).argmax(axis=1) == self.blank).tolist())

    def ends(self, log_probs: np.ndarray) -> tuple[float, ...]:
        """Return for each of (E, V) frames the probability of the label; () without one."""
        if self.end_of_turn is None:
            return ()
        return tuple(np.exp(log_probs[:, self.end_of_turn]).tolist())


def penalize_blank(log_probs: np.ndarray, blank: int, penalty: float) -> np.ndarray:
    """Lower the blank's log-probability in (E, V) frames by `penalty`, and normalise again.

    A network trained on little data has more deletions than insertions.
    """
    if penalty == 0.0:
        return log_probs
    lowered = log_probs.copy()
    lowered[:, blank] -= penalty
    return log_softmax(lowered)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return the logarithms of the probabilities of logits (…, V)."""
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def checked_penalty(penalty: float) -> float:
    """Return the penalty; ValueError if it is infinite or NaN."""
    if not math.isfinite(penalty):
        raise ValueError(f"blank_penalty must be a finite number, got {penalty}")
    return penalty
