"""Rotary positions."""

import math

import torch
from torch import Tensor

from asrkit.model.positions.base import Position
from asrkit.model.positions.distances import frequencies


class RotaryPosition(Position):
    """Kind `rotary`: pairs of dimensions of queries and keys, rotated by angles of their position.

        score(i, j) = (R_i q_i)·(R_j k_j) / sqrt(Dh) = q_i·R_{j-i} k_j / sqrt(Dh)

    R_t rotates dimensions 2m and 2m+1 by t·base^(-2m/R). Su et al. 2021 (RoFormer), section 3.2.
    The cache holds keys without rotation, and each block rotates them by their place in the block.
    Angles of absolute positions, as in published code, become inaccurate after minutes in float32,
    and within a second in half precision.

    Args:
        share: share of a head's dimensions that are rotated; the others have no position.
        base: pair m makes one rotation in 2π·base^(2m/R) frames.
    """

    def __init__(self, dim: int, num_heads: int, share: float = 1.0, base: float = 10000.0) -> None:
        super().__init__(dim, num_heads)
        if not base > 1.0:
            raise ValueError(f"base must be above 1, got {base}")
        if not 0.0 < share <= 1.0:
            raise ValueError(f"share must be above 0 and at most 1, got {share}")
        self.num_turned = round(share * (dim // num_heads)) // 2 * 2  # R
        if self.num_turned < 2:
            raise ValueError(
                f"share must leave a pair of dimensions to rotate, got {share} of a head's "
                f"dim / num_heads = {dim // num_heads} dimensions"
            )
        self.base = base

    def table(self, left_context: int, chunk_size: int, like: Tensor) -> Tensor:
        """(2, M+2C, R/2): cosines and sines of the places of the W keys, then of the C queries."""
        keys = torch.arange(-left_context, chunk_size, device=like.device)
        place = torch.cat([keys, keys[left_context:]])  # (M+2C,)
        pairs = frequencies(self.num_turned, like.device, self.base)
        angles = place[:, None] * pairs  # (M+2C, R/2)
        return torch.stack([angles.cos(), angles.sin()]).to(like.dtype)

    def scores(self, queries: Tensor, keys: Tensor, table: Tensor, first: int) -> Tensor:
        rows, num_keys = queries.size(3), keys.size(3)
        begin = num_keys + first
        queries = self.turn(queries / math.sqrt(keys.size(4)), table[:, begin : begin + rows])
        return queries @ self.turn(keys, table[:, :num_keys]).transpose(3, 4)

    def turn(self, x: Tensor, table: Tensor) -> Tensor:
        """Rotate x by the angles of the table: (..., P, Dh), (2, P, R/2) -> (..., P, Dh)."""
        even, odd = x[..., : self.num_turned : 2], x[..., 1 : self.num_turned : 2]
        cos, sin = table[0], table[1]
        turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
        return torch.cat([turned.flatten(-2), x[..., self.num_turned :]], dim=-1)
