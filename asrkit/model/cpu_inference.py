"""Attention and subsampling that are computed faster on a CPU when no gradient is needed.

Long steps are computed in parts whose intermediate tensors stay small: they fit into the cache, and
the allocator reuses their memory. tools/README.md has the speed-up of each.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from asrkit.model.context import FrameRate
from asrkit.model.positions import Position
from asrkit.model.positions.distances import by_distance, columns, shift

SHORTEST = 128  # queries, 5 s of audio: shorter blocks are too small a part of an encoder's time
PRECISIONS = (torch.float32, torch.float64)
PIECE = 64  # encoder frames of all rows whose subsampling is computed at once


def serves(x: Tensor) -> bool:
    """Return whether this step is computed eagerly, on a CPU and without a gradient."""
    exported = torch.compiler.is_compiling() or torch.jit.is_tracing()
    return x.device.type == "cpu" and not torch.is_grad_enabled() and not exported


def attends(position: Position, queries: Tensor, table: Tensor) -> bool:
    """Return whether `attend` computes the attention of queries (B, H, n, C, Dh + extra)."""
    if not position.fused or table.dim() < 3:  # kinds without positions have no table
        return False
    long = queries.size(2) == 1 and queries.size(3) >= SHORTEST
    return long and queries.dtype in PRECISIONS and serves(queries)


def attend(
    position: Position,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    valid: Tensor,
    table: Tensor,
    masked: float,
    max_rows: int,
) -> Tensor:
    """Return the context (B, H, C, Dh) of the queries of one block, with torch's fused kernel.

    Equals `ChunkAttention.by_blocks` for the position encodings whose scores are

        score(t, s) = content_t·k_s + positions_t·table_distance(t, s)

    The second product is a bias for the kernel, which computes the first one, the softmax and the
    context for a few keys at a time.

    Args:
        queries: (B, H, 1, C, Dh + extra).
        keys: (B, H, W, Dh).
        values: (B, H, W, Dh).
        valid: (B, 1, 1, 1, W).
        table: (H, X, M+2C).
        masked: bias of a key that is not valid.
        max_rows: largest number of queries whose biases are in memory at once.
    """
    content, positions = position.terms(queries)  # (B, H, 1, C, Dh), (B, H, 1, C, X)
    invalid = None if bool(valid.all()) else ~valid[:, :, 0]  # (B, 1, 1, W)
    num_keys, parts = keys.size(2), []
    for first in range(0, queries.size(3), max_rows):
        rows = positions[:, :, :, first : first + max_rows]  # (B, H, 1, Q, X)
        distances = columns(table, first, rows.size(3), num_keys)  # (H, X, W+Q)
        bias = shift(by_distance(rows, distances), num_keys)[:, :, 0]  # (B, H, Q, W)
        if invalid is not None:
            bias.masked_fill_(invalid, masked)
        part = functional.scaled_dot_product_attention(
            content[:, :, 0, first : first + max_rows], keys, values, attn_mask=bias, scale=1.0
        )
        parts.append(part.transpose(1, 2))  # (B, Q, H, Dh), contiguous
    return torch.cat(parts, dim=1).transpose(1, 2)


def subsampled(
    subsampling: Callable[..., tuple[Tensor, Tensor, Tensor]],
    rate: FrameRate,
    feats: Tensor,
    real: Tensor,
    past_feats: Tensor,
    past_hidden: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute a step of a `Subsampling`, a piece after the other."""
    size = rate.factor * max(16, PIECE // max(1, feats.size(0)))
    parts: list[Tensor] = []
    for first in range(0, max(1, feats.size(1) - rate.lookahead), size):
        piece = slice(first, first + size + rate.lookahead)
        part, past_feats, past_hidden = subsampling(
            feats[:, piece], real[:, piece], past_feats, past_hidden
        )
        parts.append(part)
    x = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    return x, past_feats, past_hidden
