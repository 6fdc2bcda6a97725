"""The two interfaces of position encodings: within attention, and on frames."""

import math

import torch
from torch import Tensor, nn


class Position(nn.Module):
    """An encoding inside the attention of a layer; this base class has no positions.

        table   = position.table(left_context, chunk_size, like)    # kept in inference
        keys    = position.attach(keys, vectors)                    # (B, H, T, Dh + extra), cached
        scores  = position.scores(queries, keys, table, first)      # (B, H, n, Q, W)
        context = position.context(weights, values, table, first)   # (B, H, n, Q, Dh)

    The table holds everything that does not depend on the input. Queries, keys and values are in
    blocks of C queries and W = M+C keys; the queries of a long block are split into tiles of Q.
    Methods that a kind does not override compute

        score(i, j) = q_i·k_j / sqrt(Dh)        context(i) = Σ_j weight(i, j) v_j

    Args:
        dim: D.
        num_heads: H.

    Attributes:
        extra_query_dim: dimensions of a query beyond Dh, for kinds with their own queries.
        extra_key_dim: dimensions of a cached key beyond Dh, for kinds that extend keys.
        fused: whether `terms` and the table define the scores, as `triton_attention` needs.
    """

    fused = False

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.extra_query_dim, self.extra_key_dim = 0, 0

    @staticmethod
    def on_frames(dim: int) -> "FramePosition":
        """Return the frame encoding whose `vectors` are passed to `attach`."""
        return FramePosition(dim)

    def table(self, left_context: int, chunk_size: int, like: Tensor) -> Tensor:
        """Return what depends only on the distances in a block, with `like`'s device and dtype."""
        return like.new_zeros([0])

    def attach(self, keys: Tensor, vectors: Tensor) -> Tensor:
        """Return keys as the cache stores them.

        Args:
            keys: (B, H, T, Dh), keys of the frames of a step.
            vectors: (B, T, X) of these frames, from `FramePosition.vectors`.

        Returns:
            (B, H, T, Dh + extra_key_dim).
        """
        return keys

    def scores(self, queries: Tensor, keys: Tensor, table: Tensor, first: int) -> Tensor:
        """Return scores of queries of a block against all of its keys.

        Args:
            queries: (B, H, n, Q, Dh + extra_query_dim), queries first … first+Q-1 of each block.
            keys: (B, H, n, W, Dh + extra_key_dim).
            first: row of the block at which `queries` start (0 unless the block is split).

        Returns:
            (B, H, n, Q, W), which the caller may modify in place.
        """
        return self.terms(queries)[0] @ keys.transpose(3, 4)

    def terms(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scaled queries for the product with the keys, and those for the table.

        (B, H, n, Q, Dh + extra_query_dim) -> (B, H, n, Q, Dh + extra_key_dim), (B, H, n, Q, X)
        """
        return queries / math.sqrt(self.head_dim), queries[..., :0]

    def context(self, weights: Tensor, values: Tensor, table: Tensor, first: int) -> Tensor:
        """(B, H, n, Q, W) attention weights, (B, H, n, W, Dh) values -> (B, H, n, Q, Dh)."""
        return weights @ values


class NoPosition(Position):
    """Kind `none`: scores without positions."""

    fused = True


class FramePosition(nn.Module):
    """An absolute encoding of the frames before the first layer; this base class changes nothing.

    The attention of all layers then has no positions (`NoPosition`).

    Attributes:
        cycle: frames after which the encoding repeats, if training begins anywhere in them; or 0.
    """

    cycle: int = 0

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def table(self, like: Tensor) -> Tensor:
        """Return what does not depend on the input, on the device of `like`."""
        return like.new_zeros([0])

    def forward(self, x: Tensor, position: Tensor, table: Tensor) -> Tensor:
        """Encode the positions of frames.

        Args:
            x: (B, T, D), not modified.
            position: (B,) int64, number of frames before x in each row's stream.

        Returns:
            (B, T, D).
        """
        return x

    def vectors(self, x: Tensor, position: Tensor, table: Tensor) -> Tensor:
        """Return vectors that every layer's attention attaches to these frames' keys: (B, T, X).

        Args:
            x: (B, T, D).
            position: (B,), see `forward`.
        """
        return x[:, :, :0]


def frame_numbers(x: Tensor, position: Tensor) -> Tensor:
    """Return the index of each frame of x in its stream: (B, T) int64."""
    return position[:, None] + torch.arange(x.size(1), device=x.device)
