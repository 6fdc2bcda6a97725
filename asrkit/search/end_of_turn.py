"""The label that marks the end of a turn, which searches of log-probabilities do not write."""

import torch
from torch import Tensor

NEVER = -1e4  # log-probability of a label that no search writes


def hide(log_probs: Tensor, blank: int, label: int | None) -> Tensor:
    """Return (E, V) log-probabilities in which the blank has the label's share, too."""
    if label is None:
        return log_probs
    hidden = log_probs.clone()
    hidden[:, blank] = torch.logaddexp(log_probs[:, blank], log_probs[:, label])
    hidden[:, label] = NEVER
    return hidden


class HidesEndOfTurn:
    """The part of a search for log-probabilities that concerns the label of ends of turns."""

    blank: int
    end_of_turn: int | None = None  # the label; None for a network without one

    def hidden(self, log_probs: Tensor) -> Tensor:
        """Return the log-probabilities that the search reads, (E, V)."""
        return hide(log_probs, self.blank, self.end_of_turn)

    def ends(self, log_probs: Tensor, state: object = None, after: object = None) -> list[float]:
        """Return for each of (E, V) frames the probability of the label."""
        assert self.end_of_turn is not None
        found: list[float] = log_probs[:, self.end_of_turn].exp().tolist()
        return found
