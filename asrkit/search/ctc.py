"""Common parts of CTC's searches: the blank penalty, and the label of ends of turns."""

import math

import torch
from torch import Tensor

from asrkit.search.base import Search

NEVER = -1e4  # log-probability of a label that no search writes


def penalize_blank(log_probs: Tensor, blank: int, penalty: float) -> Tensor:
    """Lower the blank's log-probability in (E, V) frames by `penalty`, and normalise again.

    A network trained on little data has more deletions than insertions.
    """
    if penalty == 0.0:
        return log_probs
    lowered = log_probs.clone()
    lowered[:, blank] -= penalty
    return lowered.log_softmax(dim=1)


def checked_penalty(penalty: float) -> float:
    """Return the penalty; ValueError if it is infinite or NaN."""
    if not math.isfinite(penalty):
        raise ValueError(f"blank_penalty must be a finite number, got {penalty}")
    return penalty


class CtcSearch(Search):
    """A search that reads log-probabilities, and never writes the label of ends of turns."""

    blank_penalty = 0.0

    def readable(self, log_probs: Tensor) -> Tensor:
        """Return the log-probabilities (E, V) from which the search chooses.

        The blank has the share of the label of ends of turns, too.
        """
        blank, label = self.blank, self.end_of_turn
        if label is not None:
            both = torch.logaddexp(log_probs[:, blank], log_probs[:, label])
            log_probs = log_probs.clone()
            log_probs[:, blank], log_probs[:, label] = both, NEVER
        return penalize_blank(log_probs, blank, self.blank_penalty)

    def ends(self, log_probs: Tensor) -> tuple[float, ...]:
        """Return for each of (E, V) frames the probability of the label; () without one."""
        if self.end_of_turn is None:
            return ()
        return tuple(log_probs[:, self.end_of_turn].exp().tolist())
