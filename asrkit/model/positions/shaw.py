"""Shaw's relative keys and values."""

import math

from torch import Tensor
from torch.nn import functional

from asrkit.model.positions.base import Position
from asrkit.model.positions.distances import clipped, columns, distances, learned_table, shift


class ShawPosition(Position):
    """Kind `shaw`: learned vectors of the clipped distance, added to keys and to values.

        score(i, j) = q_i·(k_j + a^K_clip(j-i)) / sqrt(Dh)
        context(i) = Σ_j weight(i, j) (v_j + a^V_clip(j-i))

    Shaw et al. 2018, eq. 3 and 4; the heads share the tables. The authors' code gathers a
    (T, T, Dh) tensor. Here scores are one product with the table and a shift, and values are
    attention weights by distance times the table.

    Args:
        max_distance: k; distances beyond ±k count as ±k.
        values: add a^V to the values.
    """

    def __init__(
        self, dim: int, num_heads: int, max_distance: int = 64, values: bool = True
    ) -> None:
        super().__init__(dim, num_heads)
        self.values = values
        self.embeddings = learned_table(max_distance, dim // num_heads * (2 if values else 1))

    def table(self, left_context: int, chunk_size: int, like: Tensor) -> Tensor:
        """Return (Dh, M+2C) for keys, or (2·Dh, M+2C) for keys and values."""
        return clipped(self.embeddings, -distances(left_context, chunk_size, like)).t()

    def scores(self, queries: Tensor, keys: Tensor, table: Tensor, first: int) -> Tensor:
        rows, num_keys, size = queries.size(3), keys.size(3), keys.size(4)
        queries = queries / math.sqrt(size)
        table = columns(table[:size], first, rows, num_keys)  # (Dh, W+Q)
        return queries @ keys.transpose(3, 4) + shift(queries @ table, num_keys)

    def context(self, weights: Tensor, values: Tensor, table: Tensor, first: int) -> Tensor:
        context = weights @ values
        if self.values:
            rows, num_keys, size = weights.size(3), weights.size(4), values.size(4)
            table = columns(table[size:], first, rows, num_keys)  # (Dh, W+Q)
            context = context + unshift(weights) @ table.t()
        return context


def unshift(weights: Tensor) -> Tensor:
    """The inverse of `shift`: weights by key (..., Q, W) to weights by distance (..., Q, W + Q)."""
    rows, num_keys = weights.size(-2), weights.size(-1)
    flat = functional.pad(weights, [0, rows - 1]).flatten(-2)  # (..., Q·(W+Q-1))
    flat = functional.pad(flat, [rows - 1, 1])  # (..., Q·(W+Q))
    return flat.unflatten(-1, (rows, num_keys + rows))
