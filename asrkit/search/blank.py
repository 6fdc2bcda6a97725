"""Hearing more: the blank made less likely than the network says."""

import math

from torch import Tensor


def less_blank(log_probs: Tensor, blank: int, penalty: float) -> Tensor:
    """(E, V) as if every blank's probability were divided by e^penalty, normalised again.

    A network trained on little misses more words than it makes up; this trades one for the other.
    """
    if penalty == 0.0:
        return log_probs
    lowered = log_probs.clone()
    lowered[:, blank] -= penalty
    return lowered.log_softmax(dim=1)


def is_quiet(log_probs: Tensor, blank: int, penalty: float) -> list[bool]:
    """Whether the blank so lowered is still the likeliest, of each of (E, V) frames."""
    return (less_blank(log_probs, blank, penalty).argmax(dim=1) == blank).tolist()


def checked_penalty(penalty: float) -> float:
    """Raises ValueError for what is no number."""
    if not math.isfinite(penalty):
        raise ValueError(f"blank_penalty must be a number, got {penalty}")
    return penalty
