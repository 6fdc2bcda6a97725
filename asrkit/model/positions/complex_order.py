"""Complex-order position encoding."""

import torch
from torch import Tensor, nn

from asrkit.model.positions.base import FramePosition, frame_numbers
from asrkit.model.positions.distances import frequencies


class ComplexPosition(FramePosition):
    """Kind `complex`: pairs of a frame's dimensions as complex numbers, times learned waves.

        y_t[m] = x_t[m] · a_m exp(i (ω_m t + θ_m)),   m = 1 … D/2

    After Wang et al. 2020, section 3, with an amplitude a, a frequency ω and a phase θ for each
    pair. In the paper the amplitude is the word's embedding; here it multiplies the frame. Even
    dimensions are the real parts, odd ones the imaginary parts. Angles are computed in float64.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        initial = frequencies(dim, torch.device("cpu")).to(torch.get_default_dtype())
        self.frequency = nn.Parameter(initial)  # ω (D/2,)
        self.amplitude = nn.Parameter(torch.ones(dim // 2))
        self.phase = nn.Parameter(torch.zeros(dim // 2))

    def forward(self, x: Tensor, position: Tensor, table: Tensor) -> Tensor:
        numbers = frame_numbers(x, position).to(torch.float64).unsqueeze(2)  # (B, T, 1)
        angles = numbers * self.frequency.to(torch.float64) + self.phase.to(torch.float64)
        cos = self.amplitude * angles.cos().to(x.dtype)  # (B, T, D/2)
        sin = self.amplitude * angles.sin().to(x.dtype)
        real, imaginary = x[..., 0::2], x[..., 1::2]
        turned = [real * cos - imaginary * sin, real * sin + imaginary * cos]
        return torch.stack(turned, dim=3).flatten(2)
