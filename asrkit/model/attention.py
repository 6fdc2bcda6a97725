"""Self-attention in chunks with an M-frame past of keys and values."""

from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from asrkit.context import Context
from asrkit.model.chunks import joined_windows, split_ahead
from asrkit.model.cpu_training import Dropout
from asrkit.model.kernels import triton_attention
from asrkit.model.positions import Position

# Queries scored at once: bounds the (Q, W) scores of a long full-context block. For a one-minute
# block, 128 rows fit into a core's cache.
MAX_ROWS = 128


class LayerStep(NamedTuple):
    """The inputs that all layers of a step share; each layer's past is separate."""

    valid: Tensor  # (B, 1, n, 1, M+C+R) bool, see `valid_keys`
    vectors: Tensor  # (B, n·(C+R), X), attached to the keys by the encoding
    ahead: int  # R


class ChunkAttention(nn.Module):
    """Multi-head self-attention of each chunk to itself and to the M frames before it.

    A forward over T = n·C frames is a batch of n blocks of C queries and W = M + C keys. So the
    same code computes a streaming step (n = 1), a chunked pass over a whole utterance (n = T/C) and
    full context (C = T, M = 0). No (T, T) matrix or mask is built for chunks. With R frames of
    right context, blocks have C + R queries, see `chunks`.

    Args:
        dim: D, a multiple of num_heads.
        dropout: probability for the attention weights and for the output.
        position: encoding that computes scores and context, see `positions`.
        kernels: use the kernels for NVIDIA GPUs where possible, see `kernels`.
    """

    # -inf would make a row without a valid key NaN, and float16 cannot hold the -1e10 of much
    # published code; exp(-1e4) is exactly 0 in every precision.
    masked: Final[float] = -1e4

    def __init__(
        self, dim: int, num_heads: int, dropout: float, position: Position, kernels: bool = False
    ) -> None:
        super().__init__()
        self.kernels = kernels
        self.num_heads, self.max_rows = num_heads, MAX_ROWS
        self.position = position
        self.queries_width = dim + num_heads * position.extra_query_dim
        self.qkv = nn.Linear(dim, self.queries_width + 2 * dim)
        self.out = nn.Linear(dim, dim)
        self.dropout = Dropout(dropout)

    def init_state(self, batch_size: int, left_context: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the past keys (B, H, M, Dk) and values (B, H, M, Dh) before a stream."""
        shape, size = (batch_size, self.num_heads, left_context), self.position.head_dim
        keys = like.new_zeros(*shape, size + self.position.extra_key_dim)
        return keys, like.new_zeros(*shape, size)

    def table(self, context: Context, like: Tensor) -> Tensor:
        """Return the table of the position encoding for blocks of C + R queries. It depends only on
        the context."""
        block_size = context.chunk_size + context.right
        return self.position.table(context.left, block_size, like).contiguous()

    def forward(
        self, x: Tensor, step: LayerStep, table: Tensor, past_keys: Tensor, past_values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute one step.

        Args:
            x: (B, T, D), T = n·(C+R): whole chunks with their right context.
            step: valid keys, vectors of the encoding, and R.
            table: table of the encoding for M and C + R.
            past_keys: (B, H, M, Dk), Dk = Dh + extra_key_dim of the encoding.
            past_values: (B, H, M, Dh).

        Returns:
            (B, T, D), and the keys and values of the last M frames.
        """
        block, ahead = step.valid.size(4) - past_keys.size(2), step.ahead
        parts = self.qkv(x).split([self.queries_width, x.size(2), x.size(2)], dim=2)
        q, k, v = [part.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for part in parts]
        k, keys_ahead = split_ahead(self.position.attach(k, step.vectors), block, ahead)
        v, values_ahead = split_ahead(v, block, ahead)  # (B, H, n·C, Dh), (B, H, n, R, Dh)
        keys = torch.cat([past_keys, k], dim=2)  # (B, H, M+n·C, Dk)
        values = torch.cat([past_values, v], dim=2)  # (B, H, M+n·C, Dh)
        queries = q.unflatten(2, (-1, block))  # (B, H, n, C+R, Dh + extra)
        context: Tensor | None = None
        if not torch.jit.is_scripting():  # noqa: SIM102, or TorchScript would compile it
            if self.kernels and ahead == 0 and triton_attention.serves(self.position, queries):
                context = self.by_kernels(queries, keys, values, step.valid, table)
        if context is None:
            context = self.by_blocks(
                queries, keys, values, step.valid, table, keys_ahead, values_ahead
            )
        past = k.size(2)
        output = self.out(context.transpose(1, 2).flatten(2))  # (B, T, D)
        return self.dropout(output), keys[:, :, past:], values[:, :, past:]

    def by_kernels(
        self, queries: Tensor, keys: Tensor, values: Tensor, valid: Tensor, table: Tensor
    ) -> Tensor:
        """Compute `by_blocks` with R = 0 on an NVIDIA GPU."""
        # Under autocast the parameters of an encoding would turn these into float32.
        content, positions = (
            x.flatten(2, 3).to(queries.dtype) for x in self.position.terms(queries)
        )
        dropout = self.dropout.p if self.training else 0.0
        return triton_attention.attend(content, positions, keys, values, table, valid, dropout)

    def by_blocks(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid: Tensor,
        table: Tensor,
        keys_ahead: Tensor | None = None,
        values_ahead: Tensor | None = None,
    ) -> Tensor:
        """Return the context (B, H, T, Dh) of the queries of blocks, on any device.

        Args:
            queries: (B, H, n, C+R, Dh + extra).
            keys: (B, H, M+n·C, Dk).
            values: (B, H, M+n·C, Dh).
            valid: (B, 1, n, 1, W).
            table: table of the encoding for M and C + R.
            keys_ahead: (B, H, n, R, Dk); None for R = 0.
            values_ahead: (B, H, n, R, Dh).
        """
        num_queries = queries.size(3)
        keys = joined_windows(keys, keys_ahead, num_queries, valid.size(4))  # (B, H, n, W, Dk)
        values = joined_windows(values, values_ahead, num_queries, valid.size(4))
        parts: list[Tensor] = []
        invalid = ~valid
        first = 0
        while first < num_queries:
            rows = queries[:, :, :, first : first + self.max_rows]
            scores = self.position.scores(rows, keys, table, first)  # (B, H, n, Q, W)
            weights = self.dropout(scores.masked_fill_(invalid, self.masked).softmax(dim=4))
            parts.append(self.position.context(weights, values, table, first))  # (B, H, n, Q, Dh)
            first += self.max_rows
        context = parts[0] if len(parts) == 1 else torch.cat(parts, dim=3)  # (B, H, n, C, Dh)
        return context.flatten(2, 3)
