"""Best path decoding: the likeliest token of every frame, repeats merged, blanks dropped."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asrkit.search.base import NOTHING, CtcSearch, Hypothesis, checked_penalty


class GreedyState(NamedTuple):
    hypothesis: Hypothesis
    last: int  # token of the last frame
    frame: int  # number of frames processed
    quiet: tuple[bool, ...] = ()
    ends: tuple[float, ...] = ()


class GreedySearch(CtcSearch):
    """Incremental best path (Graves et al. 2006, section 3.2).

    Args:
        blank_penalty: amount to subtract from the blank's log-probability: fewer deletions, more
            insertions.
    """

    Value = GreedyState

    def __init__(self, blank_penalty: float = 0.0) -> None:
        self.blank_penalty = checked_penalty(blank_penalty)

    def start(self) -> GreedyState:
        return GreedyState(NOTHING, self.blank, 0)

    def step_all(
        self, states: Sequence[GreedyState], log_probs: Sequence[np.ndarray]
    ) -> list[GreedyState]:
        rows = np.concatenate([*log_probs])
        readable = self.readable(rows)
        ids, best = readable.argmax(axis=1).tolist(), readable.max(axis=1).tolist()
        ends, end, after = self.ends(rows), 0, list[GreedyState]()
        for state, part in zip(states, log_probs, strict=True):
            start, end = end, end + len(part)
            after.append(self.after(state, best[start:end], ids[start:end])._replace(
                quiet=tuple(token == self.blank for token in ids[start:end]), ends=ends[start:end]
            ))  # fmt: skip
        return after

    def after(self, state: GreedyState, best: Sequence[float], ids: Sequence[int]) -> GreedyState:
        """Return the state after frames with these likeliest tokens and log-probabilities."""
        if ids.count(self.blank) == len(ids):
            last = self.blank if ids else state.last
            return GreedyState(state.hypothesis, last, state.frame + len(ids))
        tokens, starts = list(state.hypothesis.tokens), list(state.hypothesis.starts)
        ends, confidences = list(state.hypothesis.ends), list(state.hypothesis.confidences)
        last, frame = state.last, state.frame
        for log_prob, token in zip(best, ids, strict=True):
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
