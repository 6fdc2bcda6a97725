"""Encodings that add a bias to the score: T5's buckets and ALiBi."""

import math

import torch
from torch import Tensor, nn

from asrkit.model.positions.base import Position
from asrkit.model.positions.distances import distances, toeplitz


class BiasPosition(Position):
    """Base class of both: score(i, j) = q_i·k_j / sqrt(Dh) + b_{i-j}, with a table (H, 1, M+2C)."""

    fused = True

    def scores(self, queries: Tensor, keys: Tensor, table: Tensor, first: int) -> Tensor:
        content = self.terms(queries)[0] @ keys.transpose(3, 4)
        return content + toeplitz(table[:, 0], first, queries.size(3), keys.size(3))

    def terms(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        return queries / math.sqrt(self.head_dim), torch.ones_like(queries[..., :1])


class T5Position(BiasPosition):
    """Kind `t5`: a learned bias for each head and bucket of distances.

        score(i, j) = q_i·k_j / sqrt(Dh) + b_bucket(j-i)

    Raffel et al. 2020, section 2.1. Near distances have a bucket each, farther ones share buckets
    of logarithmic width, and distances from `max_distance` on share the last bucket. T5 has no
    1/sqrt(Dh) (its initialisation contains the factor) and shares b among layers; here each layer
    has its own b. Published code computes logarithms in float32, which may put a distance at a
    border into the wrong bucket.

    Args:
        num_buckets: number of buckets for all distances.
        max_distance: distance from which on all distances share the last bucket.
        bidirectional: give past and future half of the buckets each; if not, all future distances
            share the bucket of distance 0 (as in T5's decoder).
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
    ) -> None:
        super().__init__(dim, num_heads)
        side = num_buckets // 2 if bidirectional else num_buckets
        if side < 2 or side * (2 if bidirectional else 1) != num_buckets:
            least = "an even number of 4 or more" if bidirectional else "2 or more"
            raise ValueError(f"num_buckets must be {least}, got {num_buckets}")
        if max_distance <= side // 2:
            raise ValueError(
                f"max_distance must be above {side // 2}, the distances with a bucket of their "
                f"own, got {max_distance}"
            )
        self.side, self.max_distance, self.bidirectional = side, max_distance, bidirectional
        self.bias = nn.Parameter(torch.randn(num_buckets, num_heads) * 0.02)

    def table(self, left_context: int, chunk_size: int, like: Tensor) -> Tensor:
        return self.bias[self.buckets(-distances(left_context, chunk_size, like))].t().unsqueeze(1)

    def buckets(self, ahead: Tensor) -> Tensor:
        """(P,) distances j-i -> (P,) buckets."""
        exact = self.side // 2
        distance = ahead.abs() if self.bidirectional else (-ahead).clamp(min=0)
        ratio = distance.clamp(min=1).to(torch.float64) / exact
        share = ratio.log() / math.log(self.max_distance / exact)
        # A border belongs to the upper bucket, even if its logarithm is rounded down to …999.
        far = exact + (share * (self.side - exact) + 1e-9).floor().to(torch.int64)
        bucket = torch.where(distance < exact, distance, far.clamp(max=self.side - 1))
        return bucket + self.side * (ahead > 0).to(torch.int64) * int(self.bidirectional)


class ALiBiPosition(BiasPosition):
    """Kind `alibi`: a bias that falls linearly with the distance, without parameters.

        score(i, j) = q_i·k_j / sqrt(Dh) - m_h |i-j|,   m_h = 2^(-8h/H), h = 1 … H

    Press et al. 2022, section 3; symmetric, since a chunk also sees its future. If H is not a power
    of two, the slopes are those of the next lower power, then every other slope of the next higher
    one, as in the paper. Published code adds a bias of only the key's position; this is equal after
    a causal softmax, but wrong with future keys.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__(dim, num_heads)
        lower = 2 ** int(math.log2(num_heads))
        slopes = [2 ** (-8 * (h + 1) / lower) for h in range(lower)]
        slopes += [2 ** (-4 * (2 * h + 1) / lower) for h in range(num_heads - lower)]
        self.slopes = slopes

    def table(self, left_context: int, chunk_size: int, like: Tensor) -> Tensor:
        far = distances(left_context, chunk_size, like).abs().to(torch.float64)  # (M+2C,)
        slopes = torch.tensor(self.slopes, dtype=torch.float64, device="cpu")  # (H,)
        slopes = slopes.to(like.device, non_blocking=True)
        return (-slopes[:, None] * far).to(like.dtype).unsqueeze(1)
