"""A learned factor for the attention weights, in addition to another relative encoding."""

from typing import Literal

import torch
from torch import Tensor

from asrkit.model.positions.base import Position
from asrkit.model.positions.bias import ALiBiPosition, T5Position
from asrkit.model.positions.compact import CompactPosition
from asrkit.model.positions.distances import clipped, distances, learned_table, toeplitz
from asrkit.model.positions.relative import LearnedRelativePosition, RelativePosition

BASES: dict[str, type[Position]] = {
    "relative": RelativePosition,
    "relative_learned": LearnedRelativePosition,
    "t5": T5Position,
    "alibi": ALiBiPosition,
    "compact": CompactPosition,
}
Base = Literal["relative", "relative_learned", "t5", "alibi", "compact"]


class URPEPosition(Position):
    """Kind `urpe`: attention weights times a learned factor for the distance.

        context(i) = Σ_j weight(i, j) c_clip(i-j) v_j

    with a c for each head, initially 1. Luo et al. 2022, section 4: without the factor, purely
    relative attention cannot measure the length of its input. Before the softmax, the factor would
    only be another bias.

    Args:
        base: kind that computes the scores, with its default options. Its table is (H, X, M+2C);
            the factor adds a row.
        max_distance: Z; distances beyond ±Z count as ±Z.
    """

    def __init__(
        self, dim: int, num_heads: int, base: Base = "relative", max_distance: int = 64
    ) -> None:
        super().__init__(dim, num_heads)
        self.base = BASES[base](dim, num_heads)
        self.extra_query_dim = self.base.extra_query_dim
        self.factor = learned_table(max_distance, num_heads)  # minus 1: weight decay pulls c to 1

    def table(self, left_context: int, chunk_size: int, like: Tensor) -> Tensor:
        """(H, X+1, M+2C): the base's table with the factor as its last row."""
        base = self.base.table(left_context, chunk_size, like)
        factor = 1.0 + clipped(self.factor, distances(left_context, chunk_size, like))
        return torch.cat([base, factor.t().unsqueeze(1).to(base.dtype)], dim=1)

    def scores(self, queries: Tensor, keys: Tensor, table: Tensor, first: int) -> Tensor:
        return self.base.scores(queries, keys, table[:, :-1], first)

    def context(self, weights: Tensor, values: Tensor, table: Tensor, first: int) -> Tensor:
        factor = toeplitz(table[:, -1], first, weights.size(3), weights.size(4))
        return (weights * factor) @ values
