"""An absolute table."""

import torch
from torch import Tensor, nn

from asrkit.model.positions.base import FramePosition, frame_numbers


class LearnedPosition(FramePosition):
    """Kind `learned`: a learned vector for the frame's number, added to the frame.

        y_t = x_t + e_{t mod period}

    Gehring et al. 2017; Devlin et al. 2019. The table begins anew after `period` frames, so a
    stream may be as long as it likes (published code ends in an index error); rows that no
    utterance of training reached stay near zero, as they began.

    Args:
        dim: D.
        period: rows of the table; 1024 frames are 41 s.
    """

    def __init__(self, dim: int, period: int = 1024) -> None:
        super().__init__(dim)
        if period < 1:
            raise ValueError(f"period must be at least 1, got {period}")
        self.embeddings = nn.Parameter(torch.randn(period, dim) * 0.02)

    def forward(self, x: Tensor, position: Tensor, table: Tensor) -> Tensor:
        return x + self.embeddings[frame_numbers(x, position) % self.embeddings.size(0)]
