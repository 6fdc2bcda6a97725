"""Position encodings: one small class each, behind one seam.

An encoding has two parts, because the first does not depend on the input:

    table  = encoding.table(left_context, chunk_size)       # made once, kept in inference
    scores = encoding.scores(queries, keys, table, first)   # (B, H, n, Q, W)

A block has C queries and W = M + C keys; query i and key j are i + M - j frames apart.
"""

import math

import torch
from torch import Tensor, nn


def sinusoid(distances: Tensor, dim: int) -> Tensor:
    """Sines and cosines of signed distances (Vaswani et al. 2017, section 3.5).

    Args:
        distances: (P,) frames, of any sign: the sine keeps the sign, so r(-d) is not r(d).
        dim: even number of columns; sines in the even ones, cosines in the odd ones.

    Returns:
        (P, dim) in float64: an angle of an hour of frames would lose its digits in float32.
    """
    even = torch.arange(0, dim, 2, dtype=torch.float64, device=distances.device)
    frequencies = torch.exp(even * (-math.log(10000.0) / dim))  # (dim/2,)
    angles = distances.to(torch.float64)[:, None] * frequencies  # (P, dim/2)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


def shift(scores: Tensor, num_keys: int) -> Tensor:
    """Turn scores by distance into scores by key, without a copy or a gather.

    Column p of row i belongs to distance i + (distance of column p in row 0), so row i has to
    move left by Q-1-i. Read as one long row, that is the view that starts Q-1 entries later and
    whose rows are one entry shorter.

    Args:
        scores: (..., Q, W + Q), contiguous in the last two dimensions.
        num_keys: W.

    Returns:
        (..., Q, W), where entry (i, j) was entry (i, j + Q-1-i).
    """
    rows, columns = scores.size(-2), scores.size(-1)
    flat = scores.flatten(-2)  # (..., Q·(W+Q))
    flat = flat[..., rows - 1 : rows * columns - 1]  # (..., Q·(W+Q-1))
    return flat.unflatten(-1, (rows, columns - 1))[..., :num_keys]


class RelativePosition(nn.Module):
    """Transformer-XL relative positions (Dai et al. 2019, eq. in section 3.3 and App. B).

    score(i, j) = ((q_i + u)·k_j + (q_i + v)·W r_{i+M-j}) / sqrt(Dh)

    with r the sinusoid of the signed distance, u and v learned for each head. XLNet's scheme is
    this one. Published code often drops the shift, which leaves a bias on the key's absolute
    position and is relative in name only.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.projection = nn.Linear(dim, dim, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, 1, 1, dim // num_heads))  # u
        self.position_bias = nn.Parameter(torch.zeros(num_heads, 1, 1, dim // num_heads))  # v

    def table(self, left_context: int, chunk_size: int) -> Tensor:
        """(H, Dh, M+2C): W r for the distances M+C-1 down to -C (the last one only pads)."""
        weight = self.projection.weight
        distances = torch.arange(
            left_context + chunk_size - 1, -chunk_size - 1, -1, device=weight.device
        )
        projected = self.projection(sinusoid(distances, weight.size(1)).to(weight.dtype))
        return projected.unflatten(1, (self.num_heads, -1)).permute(1, 2, 0)

    def scores(self, queries: Tensor, keys: Tensor, table: Tensor, first: int) -> Tensor:
        """Scores of some queries of a block against all of its keys.

        Args:
            queries: (B, H, n, Q, Dh), queries first … first+Q-1 of each block.
            keys: (B, H, n, W, Dh).
            table: (H, Dh, M+2C) from `table`.
            first: row of the block at which `queries` start (0 unless the block is cut).

        Returns:
            (B, H, n, Q, W).
        """
        rows, num_keys = queries.size(3), keys.size(3)
        start = table.size(2) - num_keys - first - rows
        table = table[:, :, start : start + num_keys + rows]  # (H, Dh, W+Q)
        scale = 1.0 / math.sqrt(queries.size(4))
        content = ((queries + self.content_bias) * scale) @ keys.transpose(3, 4)
        # One product for each head over all blocks: the table is not copied for every block.
        by_head = ((queries + self.position_bias) * scale).transpose(0, 1)  # (H, B, n, Q, Dh)
        by_distance = by_head.flatten(1, 3) @ table  # (H, B·n·Q, W+Q)
        by_distance = by_distance.unflatten(1, by_head.shape[1:4]).transpose(0, 1)
        return content + shift(by_distance, num_keys)
