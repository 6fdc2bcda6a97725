"""Compare attention kernels with attention block by block on a GPU, for `make gpu-check`."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from asrkit.backends.check import difference
from asrkit.errors import UserError
from asrkit.model.attention import ChunkAttention
from asrkit.model.kernels.triton_attention import HAS_TRITON
from asrkit.model.positions import KINDS, build_positions

DIM, NUM_HEADS = 256, 4
# Largest differences allowed, as shares of the largest number if that is above 1. The reference is
# in float64, from inputs of the same precision.
LIMITS = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


class Blocks(NamedTuple):
    """Sizes of the chunks of two streams."""

    chunk_size: int
    left_context: int
    num_chunks: int


# Windows shorter and longer than a tile, chunks that are not multiples of a tile, full context.
SIZES = (Blocks(5, 7, 3), Blocks(16, 64, 4), Blocks(2, 64, 5), Blocks(300, 0, 1))


def device_of_kernels() -> str:
    """Return the GPU that the kernels run on."""
    if not torch.cuda.is_available():
        raise UserError("there is no CUDA device: the kernels are for NVIDIA GPUs")
    if not HAS_TRITON:
        raise UserError("the kernels need Triton and a C compiler: pip install triton, or gcc")
    return "cuda"


def verify_kernels(device: str, sizes: tuple[Blocks, ...] = SIZES, dim: int = DIM) -> int:
    """Print the largest difference of each kind and precision; return 1 if one is too large."""
    failed = 0
    print(f"attention kernels on {device}, contexts and gradients, against float64 block by block")
    for kind in sorted(KINDS):
        position = build_positions(kind, dim, NUM_HEADS, 1)[1][0]
        if not position.fused:
            continue
        attention = ChunkAttention(dim, NUM_HEADS, 0.0, position, kernels=True).to(device)
        for dtype, limit in LIMITS.items():
            worst = max(apart(attention, dtype, each) for each in sizes)
            failed += not worst <= limit
            verdict = "" if worst <= limit else "  FAILED"
            name = str(dtype).removeprefix("torch.")
            print(f"  {kind:<18}{name:<10}{worst:.1e} (at most {limit:.0e}){verdict}")
    print("the kernels equal attention block by block" if not failed else f"FAILED: {failed}")
    return 1 if failed else 0


def apart(attention: ChunkAttention, dtype: torch.dtype, blocks: Blocks) -> float:
    """Return the largest difference of the kernels' contexts and gradients from the reference.

    It is a share of the largest number, if that is above 1.
    """
    chunk_size, left_context, num_chunks = blocks
    heads, head_dim = attention.num_heads, attention.position.head_dim
    frames = left_context + chunk_size * num_chunks
    draw, device = torch.Generator().manual_seed(0), attention.out.weight.device
    shapes = [
        (2, heads, num_chunks, chunk_size, attention.queries_width // heads),
        (2, heads, frames, head_dim),
        (2, heads, frames, head_dim),
    ]
    drawn = [0.7 * torch.randn(shape, generator=draw).to(device, dtype) for shape in shapes]
    valid = torch.ones(2, 1, num_chunks, 1, left_context + chunk_size, dtype=torch.bool)
    valid[1, :, 0, :, :left_context] = False  # the second stream starts here
    with torch.no_grad():
        table = attention.position.table(left_context, chunk_size, attention.out.weight)
    found: list[list[Tensor]] = []
    for precision in (torch.float64, dtype):
        own = copy.deepcopy(attention).to(dtype).to(precision)
        attend = own.by_kernels if found else own.by_blocks
        inputs = [x.to(dtype).to(precision).requires_grad_() for x in (*drawn, table)]
        found.append(context_and_gradients(attend, inputs, valid.to(device)))
    return max(
        difference(a, b.double()) / max(1.0, float(a.abs().max()))
        for a, b in zip(*found, strict=True)
    )


def context_and_gradients(attend, inputs: list[Tensor], valid: Tensor) -> list[Tensor]:  # type: ignore[no-untyped-def]
    """Return the contexts for queries, keys, values and table, and the gradients of these."""
    queries, keys, values, table = inputs
    context = attend(queries, keys, values, valid, table)
    gradients = torch.autograd.grad(context.double().square().sum(), inputs, allow_unused=True)
    return [context.detach(), *(x for x in gradients if x is not None)]
