"""The blank penalty: trading deletions for insertions."""

import math

from torch import Tensor


def penalize_blank(log_probs: Tensor, blank: int, penalty: float) -> Tensor:
    """(E, V) log-probabilities with the blank's lowered by `penalty`, normalised again.

    A network trained on little data makes more deletions than insertions.
    """
    if penalty == 0.0:
        return log_probs
    lowered = log_probs.clone()
    lowered[:, blank] -= penalty
    return lowered.log_softmax(dim=1)


def is_quiet(log_probs: Tensor, blank: int, penalty: float) -> list[bool]:
    """For each of (E, V) frames, whether the blank is the likeliest label after the penalty."""
    return (penalize_blank(log_probs, blank, penalty).argmax(dim=1) == blank).tolist()


def checked_penalty(penalty: float) -> float:
    """The penalty; ValueError if it is infinite or NaN."""
    if not math.isfinite(penalty):
        raise ValueError(f"blank_penalty must be a number, got {penalty}")
    return penalty
