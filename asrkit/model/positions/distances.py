"""Relative distances within a block, and the shift from scores by distance to scores by key.

In a block, query i and key j are i + M - j frames apart. There are only M+2C-1 such distances. So
encodings compute a column for each distance, from M+C-1 (the farthest past) down to -(C-1) (the
farthest future), and one shift moves the columns to their keys.
"""

import math

import torch
from torch import Tensor, nn

from asrkit.model.positions.base import Position


class DistancePosition(Position):
    """Base class of kinds whose table (H, X, M+2C) holds a vector for each distance.

        score(i, j) = content_i·k_j + by_distance_i·table_{i-j}

    where `terms` returns content_i and by_distance_i.
    """

    fused = True

    def vectors(self, distances: Tensor) -> Tensor:
        """(P,) signed distances -> (P, H·X)."""
        raise NotImplementedError

    def table(self, left_context: int, chunk_size: int, like: Tensor) -> Tensor:
        """(H, X, M+2C)."""
        vectors = self.vectors(distances(left_context, chunk_size, like))  # (M+2C, H·X)
        return vectors.unflatten(1, (self.num_heads, -1)).permute(1, 2, 0)

    def scores(self, queries: Tensor, keys: Tensor, table: Tensor, first: int) -> Tensor:
        num_keys = keys.size(3)
        content, positions = self.terms(queries)
        table = columns(table, first, queries.size(3), num_keys)  # (H, X, W+Q)
        return content @ keys.transpose(3, 4) + shift(by_distance(positions, table), num_keys)


def distances(left_context: int, chunk_size: int, like: Tensor) -> Tensor:
    """Return (M+2C,) int64 on the device of `like`: M+C-1 down to -C; the last one is padding."""
    return torch.arange(left_context + chunk_size - 1, -chunk_size - 1, -1, device=like.device)


def columns(table: Tensor, first: int, num_rows: int, num_keys: int) -> Tensor:
    """Return the columns of a table of distances that rows first … first+Q-1 of a block need.

    (..., M+2C) -> (..., W+Q)
    """
    start = table.size(-1) - num_keys - first - num_rows
    return table[..., start : start + num_keys + num_rows]


def by_distance(queries: Tensor, table: Tensor) -> Tensor:
    """Multiply queries by a table of distances, for each head.

    (B, H, n, Q, X), (H, X, P) -> (B, H, n, Q, P), contiguous in the last two dimensions. There is
    one product for each head over all blocks, so the table is not copied for every block.
    """
    by_head = queries.transpose(0, 1)  # (H, B, n, Q, X)
    products = by_head.flatten(1, 3) @ table  # (H, B·n·Q, P)
    return products.unflatten(1, by_head.shape[1:4]).transpose(0, 1)


def shift(scores: Tensor, num_keys: int) -> Tensor:
    """Turn scores by distance into scores by key, without a copy or a gather.

    Column p of row i has the distance i + (distance of column p in row 0), so row i moves left by
    Q-1-i. In the flattened matrix, this is a view that starts Q-1 entries later and has rows one
    entry shorter.

    Args:
        scores: (..., Q, W + Q), contiguous in the last two dimensions.
        num_keys: W.

    Returns:
        (..., Q, W), where entry (i, j) was entry (i, j + Q-1-i).
    """
    rows, width = scores.size(-2), scores.size(-1)
    flat = scores.flatten(-2)  # (..., Q·(W+Q))
    flat = flat[..., rows - 1 : rows * width - 1]  # (..., Q·(W+Q-1))
    return flat.unflatten(-1, (rows, width - 1))[..., :num_keys]


def toeplitz(table: Tensor, first: int, num_rows: int, num_keys: int) -> Tensor:
    """Return the matrix whose entry (i, j) is the table's value for query i's distance to key j.

    (H, M+2C) -> (H, 1, Q, W), for rows first … first+Q-1 of a block.
    """
    by_distance = columns(table, first, num_rows, num_keys).unsqueeze(1)  # (H, 1, W+Q)
    return shift(by_distance.expand(-1, num_rows, -1), num_keys).unsqueeze(1)


def frequencies(
    dim: int, device: torch.device, base: float = 10000.0, last: bool = False
) -> Tensor:
    """Return base^(-2m/D) for m = 0 … D/2-1: (D/2,) in float64.

    With `last`, return base^(-m/(D/2-1)), whose last frequency is 1/base.
    """
    even = torch.arange(0, dim, 2, dtype=torch.float64, device=device)
    return torch.exp(even * (-math.log(base) / (dim - 2 if last else dim)))


def waves(positions: Tensor, frequencies: Tensor) -> Tensor:
    """Return sines and cosines of (P,) positions times (D/2,) frequencies: (P, D) in float64.

    Positions or distances may be negative. After an hour, angles in float32 would be too coarse.
    """
    angles = positions.to(torch.float64)[:, None] * frequencies  # (P, D/2)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


def learned_table(max_distance: int, dim: int) -> nn.Parameter:
    """Return a parameter (2Z+1, dim) of small random values: a row for each distance -Z to Z."""
    return nn.Parameter(torch.randn(2 * max_distance + 1, dim) * 0.02)


def clipped(table: Tensor, distances: Tensor) -> Tensor:
    """(2Z+1, X), (P,) -> (P, X): the rows of distances clipped to ±Z."""
    most = table.size(0) // 2
    return table[distances.clamp(-most, most) + most]
