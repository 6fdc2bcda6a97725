"""The blank penalty, which trades deletions for insertions."""

import math

from torch import Tensor


def penalize_blank(log_probs: Tensor, blank: int, penalty: float) -> Tensor:
    """Lower the blank's log-probability in (E, V) frames by `penalty`, and normalise again.

    A network trained on little data has more deletions than insertions.
    """
    if penalty == 0.0:
        return log_probs
    lowered = log_probs.clone()
    lowered[:, blank] -= penalty
    return lowered.log_softmax(dim=1)


def is_quiet(log_probs: Tensor, blank: int, penalty: float) -> list[bool]:
    """Return for each of (E, V) frames whether the blank is the likeliest after the penalty."""
    return (penalize_blank(log_probs, blank, penalty).argmax(dim=1) == blank).tolist()


def checked_penalty(penalty: float) -> float:
    """Return the penalty; ValueError if it is infinite or NaN."""
    if not math.isfinite(penalty):
        raise ValueError(f"blank_penalty must be a finite number, got {penalty}")
    return penalty
