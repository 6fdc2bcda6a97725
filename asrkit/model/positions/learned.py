"""Learned absolute positions."""

import torch
from torch import Tensor, nn

from asrkit.model.positions.base import FramePosition, frame_numbers


class LearnedPosition(FramePosition):
    """Kind `learned`: a learned vector of the frame's index, added to the frame.

        y_t = x_t + e_{t mod period}

    Gehring et al. 2017; Devlin et al. 2019. The table repeats after `period` frames, so it does not
    limit the length of a stream; published code raises an index error there. Rows that no training
    utterance reached stay near zero, their initial value.

    Args:
        period: rows of the table; 1024 frames are 41 s.
    """

    def __init__(self, dim: int, period: int = 1024) -> None:
        super().__init__(dim)
        self.embeddings = nn.Parameter(torch.randn(period, dim) * 0.02)

    def forward(self, x: Tensor, position: Tensor, table: Tensor) -> Tensor:
        return x + self.embeddings[frame_numbers(x, position) % self.embeddings.size(0)]
