"""Best path decoding: the likeliest token of every frame, repeats merged, blanks dropped."""

import math
from typing import NamedTuple

from torch import Tensor

from asrkit.search.base import NOTHING, Hypothesis, OneResult, checked
from asrkit.search.blank_penalty import checked_penalty, is_quiet, penalize_blank
from asrkit.search.end_of_turn import HidesEndOfTurn


class GreedyState(NamedTuple):
    hypothesis: Hypothesis
    last: int  # token of the last frame
    frame: int  # number of frames processed


class GreedySearch(HidesEndOfTurn, OneResult):
    """Incremental best path (Graves et al. 2006, section 3.2).

    Args:
        blank_penalty: amount to subtract from the blank's log-probability: fewer deletions, more
            insertions.

    Raises:
        ValueError: for a penalty that is infinite or NaN.
    """

    Value = GreedyState

    def __init__(self, blank: int = 0, blank_penalty: float = 0.0) -> None:
        self.blank, self.blank_penalty = blank, checked_penalty(blank_penalty)

    def start(self) -> GreedyState:
        return GreedyState(NOTHING, self.blank, 0)

    def step(self, state: GreedyState, log_probs: Tensor) -> GreedyState:
        """Return the state after (E, V) more frames of log-probabilities."""
        tokens, starts = list(state.hypothesis.tokens), list(state.hypothesis.starts)
        ends, confidences = list(state.hypothesis.ends), list(state.hypothesis.confidences)
        last, frame = state.last, state.frame
        log_probs = penalize_blank(self.hidden(log_probs), self.blank, self.blank_penalty)
        best, ids = log_probs.max(dim=1)
        for log_prob, token in zip(best.tolist(), ids.tolist(), strict=True):
            if token != self.blank:
                if token != last:
                    tokens.append(token)
                    starts.append(frame)
                    ends.append(frame)
                    confidences.append(0.0)
                ends[-1] = frame + 1
                confidences[-1] = max(confidences[-1], math.exp(log_prob))
            last = token
            frame += 1
        hypothesis = Hypothesis(tuple(tokens), tuple(starts), tuple(ends), tuple(confidences))
        return GreedyState(hypothesis, last, frame)

    def quiet(self, log_probs: Tensor, state: object = None) -> list[bool]:
        return is_quiet(self.hidden(log_probs), self.blank, self.blank_penalty)

    def from_value(self, value: GreedyState, vocab_size: int, frames: int) -> GreedyState:
        hypothesis, last, frame = value
        checked(hypothesis, vocab_size, self.blank, frames)
        if frame != frames or last not in (self.blank, *hypothesis.tokens[-1:]):
            raise ValueError("the last frame of a search does not match its hypothesis")
        return value
