"""The two seams: where an encoding may act."""

import math

import torch
from torch import Tensor, nn


class Position(nn.Module):
    """An encoding inside the attention of a layer; this one, kind `none`, is content alone.

        table   = position.table(left_context, chunk_size, like)    # kept in inference
        scores  = position.scores(queries, keys, table, first)      # (B, H, n, Q, W)
        context = position.context(weights, values, table, first)   # (B, H, n, Q, Dh)

    The table holds all that does not depend on the input; queries, keys and values come in blocks
    of C queries and W = M+C keys, and the queries of a long block in tiles of Q. What a kind does
    not override, it does as here:

        score(i, j) = q_i·k_j / sqrt(Dh)        context(i) = Σ_j weight(i, j) v_j

    Args:
        dim: D.
        num_heads: H.

    Attributes:
        extra_query_dim: of a query beyond Dh, for kinds with a query of their own.
        fused: whether `terms` and the table say all of it, as `fused_attention` needs.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.extra_query_dim = 0
        self.fused = type(self) is Position  # a kind that overrides says so itself

    def table(self, left_context: int, chunk_size: int, like: Tensor) -> Tensor:
        """What the distances of a block bring, with the device and dtype of `like`."""
        return like.new_zeros([0])

    def scores(self, queries: Tensor, keys: Tensor, table: Tensor, first: int) -> Tensor:
        """Scores of some queries of a block against all of its keys.

        Args:
            queries: (B, H, n, Q, Dh + extra_query_dim), queries first … first+Q-1 of each block.
            keys: (B, H, n, W, Dh).
            table: from `table`.
            first: row of the block at which `queries` start (0 unless the block is cut).

        Returns:
            (B, H, n, Q, W), the caller's to change.
        """
        return self.terms(queries)[0] @ keys.transpose(3, 4)

    def terms(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Queries as keys meet them, and as the table's rows do, both scaled.

        (B, H, n, Q, Dh + extra_query_dim) -> (B, H, n, Q, Dh), (B, H, n, Q, X)
        """
        return queries / math.sqrt(self.head_dim), queries[..., :0]

    def context(self, weights: Tensor, values: Tensor, table: Tensor, first: int) -> Tensor:
        """(B, H, n, Q, W) attention weights and (B, H, n, W, Dh) -> (B, H, n, Q, Dh)."""
        return weights @ values


class FramePosition(nn.Module):
    """An absolute encoding, of the frames before the first layer; this one changes nothing.

    The attention of all layers is then `Position`.

    Args:
        dim: D.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()

    def table(self, like: Tensor) -> Tensor:
        """What no frame's position changes, on the device of `like`."""
        return like.new_zeros([0])

    def forward(self, x: Tensor, position: Tensor, table: Tensor) -> Tensor:
        """Mark frames with their positions.

        Args:
            x: (B, T, D).
            position: (B,) int64, frames of each row's stream before x.
            table: from `table`.

        Returns:
            (B, T, D); x itself stays as it is.
        """
        return x


def frame_numbers(x: Tensor, position: Tensor) -> Tensor:
    """(B, T) int64: which frame of its stream each frame of x is."""
    return position[:, None] + torch.arange(x.size(1), device=x.device)
