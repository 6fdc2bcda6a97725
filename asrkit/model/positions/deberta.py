"""DeBERTa's disentangled attention."""

import math
from typing import Final

import torch
from torch import Tensor, nn

from asrkit.model.positions.base import Position
from asrkit.model.positions.distances import by_distance, columns, distances, shift


class DeBERTaPosition(Position):
    """Kind `deberta`: disentangled attention, with content-to-position and position-to-content.

        score(i, j) = (q_i·k_j + q_i·K_δ(i,j) + k_j·Q_δ(j,i)) / sqrt(3 Dh)

    with K = P W_k, Q = P W_q, and δ(i, j) = i-j + k clipped to 0 … 2k-1. He et al. 2021, eq. 3 and
    4. Each layer has its own P; in the paper all layers share one. Code that uses δ(i, j) also in
    the last term reads the table backwards there.

    Args:
        max_distance: k; P has 2k rows.
    """

    # Keys in one product by distance. The product's width is the number of these keys plus queries.
    max_keys: Final[int] = 64

    def __init__(self, dim: int, num_heads: int, max_distance: int = 64) -> None:
        super().__init__(dim, num_heads)
        self.embeddings = nn.Parameter(torch.randn(2 * max_distance, dim) * 0.02)  # P
        self.key_projection = nn.Linear(dim, dim, bias=False)
        self.query_projection = nn.Linear(dim, dim, bias=False)

    def table(self, left_context: int, chunk_size: int, like: Tensor) -> Tensor:
        """Return (2, H, Dh, M+2C): K_δ(i,j) for falling i-j, and Q_δ(j,i) for rising i-j."""
        falling = distances(left_context, chunk_size, like)
        rising = 1 - chunk_size + torch.arange(falling.size(0), device=like.device)
        most = self.embeddings.size(0) // 2
        keys = self.key_projection(self.embeddings)[(falling + most).clamp(0, 2 * most - 1)]
        queries = self.query_projection(self.embeddings)[(most - rising).clamp(0, 2 * most - 1)]
        both = torch.stack([keys, queries]).unflatten(2, (self.num_heads, -1))
        return both.permute(0, 2, 3, 1)

    def scores(self, queries: Tensor, keys: Tensor, table: Tensor, first: int) -> Tensor:
        rows, num_keys = queries.size(3), keys.size(3)
        scale = 1.0 / math.sqrt(3 * keys.size(4))
        queries = queries * scale
        positions = by_distance(queries, columns(table[0], first, rows, num_keys))
        scores = queries @ keys.transpose(3, 4) + shift(positions, num_keys)
        # In the row of a key, distances rise with the query: transposed, the shift is the same.
        parts: list[Tensor] = []
        # A symbolic number of keys (in an export) cannot be split, so all keys are one part.
        step = num_keys if rows >= num_keys else max(rows, self.max_keys)
        begin = 0
        while begin < num_keys:
            part = keys[:, :, :, begin : begin + step] * scale  # (B, H, n, Wt, Dh)
            start = first + num_keys - begin - part.size(3)
            products = by_distance(part, table[1, ..., start : start + part.size(3) + rows])
            parts.append(shift(products, rows).transpose(3, 4))  # (B, H, n, Q, Wt)
            begin += step
        return scores + torch.cat(parts, dim=4)
