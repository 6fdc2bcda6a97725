"""Differences between a runtime and PyTorch."""

from typing import Any

import torch
from torch import Tensor

TOLERANCE = 1e-4
HOUR_MS = 3_600_000


def aged(state: Any, frame_ms: int) -> Any:
    """Age the rows of a state (B, …) at the same frame: now, an hour later, a day later, …

    Rounding of quantities that depend on a frame's number only shows there.
    """
    position = state.position
    hours = torch.tensor([0, 1, 24], device=position.device)
    rows = torch.arange(position.size(0), device=position.device) % len(hours)
    return state._replace(position=position + hours[rows] * (HOUR_MS // frame_ms))


def difference(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference; infinite for other shapes or infinite numbers."""
    if a.shape != b.shape or not torch.isfinite(a - b).all():
        return float("inf")
    return float((a - b).abs().max()) if a.numel() else 0.0
