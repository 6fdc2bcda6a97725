"""Zipformer's compact relative encoding."""

import math

import torch
from torch import Tensor, nn

from asrkit.model.positions.distances import DistancePosition


class CompactPosition(DistancePosition):
    """Kind `compact`: low-dimensional vectors with separate queries, finer for near distances.

        score(i, j) = q_i·k_j / sqrt(Dh) + p_i·W r_{i-j}

    p_i is a small query for positions only, separate from q_i. r holds sines and cosines of integer
    multiples of an angle between -π/2 and π/2,

        angle(d) = atan(s(d) / (F·R / 2π)),   s(d) = sign(d) sqrt(R) ln(1 + |d| / sqrt(R))

    The angle saturates for far distances, so no table limits them. r is that of Zipformer's
    published code (Yao et al. 2024, icefall), with the last sine replaced by 1, a bias. In that
    code q·k is not divided by sqrt(Dh), and d is the distance from the query to the key.

    Args:
        position_dim: R, dimensions of r; even.
        query_dim: dimensions of p_i in each head.
        length_factor: F; larger values resolve farther distances finely.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        position_dim: int = 48,
        query_dim: int = 4,
        length_factor: float = 1.0,
    ) -> None:
        super().__init__(dim, num_heads)
        if position_dim < 2 or position_dim % 2:
            raise ValueError(f"position_dim must be even and at least 2, got {position_dim}")
        if not length_factor > 0.0:
            raise ValueError(f"length_factor must be above 0, got {length_factor}")
        self.position_dim = position_dim
        self.extra_query_dim, self.length_factor = query_dim, length_factor
        self.projection = nn.Linear(position_dim, num_heads * query_dim, bias=False)

    def vectors(self, distances: Tensor) -> Tensor:
        """(P,) signed distances -> (P, H·query_dim): W r, with r in float64."""
        far = distances.to(torch.float64)
        root = math.sqrt(self.position_dim)
        compressed = root * far.sign() * (1.0 + far.abs() / root).log()
        angles = (compressed / (self.length_factor * self.position_dim / (2 * math.pi))).atan()
        multiples = 1 + torch.arange(self.position_dim // 2, device=far.device)
        angles = angles[:, None] * multiples  # (P, R/2)
        vectors = torch.stack([angles.cos(), angles.sin()], dim=2).flatten(1)
        vectors = torch.cat([vectors[:, :-1], torch.ones_like(vectors[:, :1])], dim=1)  # r (P, R)
        return self.projection(vectors.to(self.projection.weight.dtype))

    def terms(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        size = self.head_dim
        return queries[..., :size] / math.sqrt(size), queries[..., size:]
