"""Chunked attention on NVIDIA GPUs, without scores, biases or windows in memory.

Equals `ChunkAttention.by_blocks` for the position encodings whose scores are

    score(t, s) = content_t·k_s + positions_t·table_distance(t, s)

`ChunkAttention` uses the kernels only if `kernels` is set, and only in half precision, where they
are faster. `make gpu-check` compares them with `by_blocks` on your GPU. See
`triton_kernels`.
"""

import os
import shutil
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from asrkit.model.positions import Position

PRECISIONS = (torch.bfloat16, torch.float16)  # in float32 they take longer than attention by blocks
LARGEST_HEAD = 128  # float32 tiles of wider heads do not fit into an SM's shared memory
# Triton needs one of these compilers to build its kernel launcher.
COMPILERS = (os.environ.get("CC", "cc"), "gcc", "clang")
HAS_TRITON = find_spec("triton") is not None and any(map(shutil.which, COMPILERS))


def serves(position: Position, queries: Tensor) -> bool:
    """Return whether the kernels can compute this attention."""
    precise = queries.is_cuda and queries.dtype in PRECISIONS
    return precise and HAS_TRITON and position.fused and position.head_dim <= LARGEST_HEAD


def attend(
    content: Tensor,
    positions: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    valid: Tensor,
    dropout: float = 0.0,
) -> Tensor:
    """Return the context of every query.

    Sums are in float32, or in float64 if the inputs are.

    Args:
        content: (B, H, T, Dh), T = n·C; scaled queries from `Position.terms`.
        positions: (B, H, T, X), likewise from `Position.terms`.
        keys: (B, H, M+T, Dh).
        values: (B, H, M+T, Dh).
        table: (H, X, M+2C); any shape if X = 0.
        valid: (B, 1, n, 1, M+C) bool.
        dropout: dropout probability of the weights; torch's generator draws the seed.

    Returns:
        (B, H, T, Dh); zeros for a query without a valid key.
    """
    chunk_size, window = content.size(2) // valid.size(2), valid.size(4)
    if positions.size(3) == 0:
        table = content.new_zeros([content.size(1), 0, window + chunk_size])
    seed = int(torch.randint(1 << 30, [1])) if dropout > 0.0 else 0
    rows = table.transpose(1, 2)  # (H, M+2C, X)
    matrices = [x.to(content.dtype).contiguous() for x in (content, positions, keys, values, rows)]
    return FusedAttention.apply(*matrices, valid[:, 0, :, 0].contiguous(), dropout, seed)


def launch(
    kernel: Any, length: int, inputs: tuple[Tensor, ...], others: tuple[Tensor, ...],
    dropout: float, seed: int,
) -> None:  # fmt: skip
    """Run a kernel over tiles of `length` queries or keys of every row and head."""
    q, p, _, _, _, valid = inputs
    size = 32 if q.element_size() == 2 else 16  # larger tiles spill registers
    batch, heads, frames, dim = q.shape
    chunk_size, window = frames // valid.size(1), valid.size(2)
    with torch.cuda.device_of(q):  # Triton launches on the current device
        kernel[(-(-length // size), batch * heads)](
            *inputs, seed, *others, heads, frames, chunk_size, window, dim, p.size(3),
            SIZE=size, DIM=padded(dim), EXTRA=padded(p.size(3)), DROPOUT=dropout,
        )  # fmt: skip


def padded(width: int) -> int:
    """Return the next power of two, at least 16: a valid size for a product of tiles."""
    return max(16, 1 << (width - 1).bit_length())


class FusedAttention(torch.autograd.Function):
    """The kernels of `triton_kernels`, forward and backward; `rows` is their table."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, p: Tensor, k: Tensor, v: Tensor, rows: Tensor, valid: Tensor,
        dropout: float, seed: int,
    ) -> Tensor:  # fmt: skip
        from asrkit.model.kernels import triton_kernels

        out = torch.empty_like(q)
        sums = torch.promote_types(q.dtype, torch.float32)
        log_total = torch.empty(q.shape[:3], dtype=sums, device=q.device)
        inputs = (q, p, k, v, rows, valid)
        launch(triton_kernels.attend, q.size(2), inputs, (out, log_total), dropout, seed)
        ctx.save_for_backward(*inputs, out, log_total)
        ctx.dropout, ctx.seed = dropout, seed
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from asrkit.model.kernels import triton_kernels

        *inputs, out, log_total = ctx.saved_tensors
        q, p, k, v, rows, _ = inputs
        grad = grad.contiguous()
        delta = (out.to(log_total.dtype) * grad).sum(dim=3)  # (B, H, T)
        drows = torch.zeros_like(rows, dtype=log_total.dtype)  # summed by atomic additions
        dq, dp, dk, dv = (torch.empty_like(x) for x in (q, p, k, v))
        known, draws = (log_total, grad, delta), (ctx.dropout, ctx.seed)
        by_queries = triton_kernels.attend_backward_queries
        launch(by_queries, q.size(2), inputs, (*known, dq, dp, drows), *draws)
        launch(triton_kernels.attend_backward_keys, k.size(2), inputs, (*known, dk, dv), *draws)
        return dq, dp, dk, dv, drows.to(rows.dtype), None, None, None
