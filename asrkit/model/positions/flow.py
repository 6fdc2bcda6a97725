"""Position encoding by a learned differential equation."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.model.positions.base import FramePosition, frame_numbers

# Limits of a path: no weight's shape depends on it, so a model file could demand hours of solving.
MOST_FRAMES = 16384  # eleven minutes
MOST_STEPS = 4096


class FlowPosition(FramePosition):
    """Kind `flow`: the solution of a learned differential equation, added to the frame.

        y_t = x_t + p(t mod period),   dp/dt = h(t, p),   p(0) learned

    with h(t, p) = A tanh(B [p, t / period] + b) + a, the slope for a period of time. Liu et al.
    2020 (FLOATER), section 3; here only before the first layer. The fourth-order Runge-Kutta method
    solves the path in steps of `step` frames. From these points, one shorter step leads to each
    frame, for all frames at once. The path does not depend on the input and is computed once, in
    float64: in half precision neighbouring frames would be equal. After `period` frames the path
    starts again.

    Args:
        hidden_dim: hidden units of h.
        period: length of the path in frames, at most 16384 and 4096 steps; 1024 frames are 41 s.
        step: length of a solver step in frames.
    """

    def __init__(self, dim: int, hidden_dim: int = 64, period: int = 1024, step: int = 16) -> None:
        super().__init__(dim)
        if period > MOST_FRAMES or period > MOST_STEPS * step:
            raise ValueError(
                f"period must be at most {MOST_FRAMES} frames and {MOST_STEPS} steps, "
                f"got {period} in steps of {step}"
            )
        self.period, self.step = period, step
        self.start = nn.Parameter(torch.randn(dim) * 0.02)
        self.expand = nn.Linear(dim + 1, hidden_dim)
        self.project = nn.Linear(hidden_dim, dim)

    def slope(self, time: Tensor, place: Tensor) -> Tensor:
        """Return h for times (P, 1), as shares of the period, and places (P, D): (P, D)."""
        hidden = linear(torch.cat([place, time], dim=1), self.expand.weight, self.expand.bias)
        return linear(hidden.tanh(), self.project.weight, self.project.bias)

    def advance(self, time: Tensor, place: Tensor, step: Tensor) -> Tensor:
        """Return the places (P, D) after Runge-Kutta steps of lengths (P, 1)."""
        half = 0.5 * step
        k1 = self.slope(time, place)
        k2 = self.slope(time + half, place + half * k1)
        k3 = self.slope(time + half, place + half * k2)
        k4 = self.slope(time + step, place + step * k3)
        return place + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)

    def table(self, like: Tensor) -> Tensor:
        """Return the path at every frame: (period, D)."""
        frames = torch.arange(self.period, device=like.device)
        offsets = frames % self.step
        shares = (frames.to(torch.float64) / self.period).unsqueeze(1)  # (period, 1)
        within = (offsets.to(torch.float64) / self.period).unsqueeze(1)
        whole = torch.full_like(shares[:1], self.step / self.period)  # (1, 1)
        place = self.start.to(torch.float64).unsqueeze(0)  # (1, D)
        places = [place]
        for i in range(self.step, self.period, self.step):
            place = self.advance(shares[i - self.step : i - self.step + 1], place, whole)
            places.append(place)
        begin = torch.cat(places)[frames // self.step]  # (period, D), start of each frame's step
        return self.advance(shares - within, begin, within).to(like.dtype)

    def forward(self, x: Tensor, position: Tensor, table: Tensor) -> Tensor:
        return x + table[frame_numbers(x, position) % self.period]


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply the linear layer in the precision of x."""
    return functional.linear(x, weight.to(x.dtype), bias.to(x.dtype))
