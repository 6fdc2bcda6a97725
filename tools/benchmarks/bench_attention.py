"""Benchmark a layer's attention: time and memory beside torch's without positions.

On an NVIDIA GPU also the kernels that take their distances in: `asrkit/model/kernels/`.
In full context, and in chunks of 640 ms with 2560 ms before them, of frames of 40 ms.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from benchmarks import (
    CHUNK_SIZE,
    DIM,
    LEFT_CONTEXT,
    NUM_HEADS,
    Row,
    chosen,
    compared,
    environment,
    parser,
    report,
    round_robin,
)
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from asrkit.model import Context
from asrkit.model.attention import ChunkAttention, LayerStep
from asrkit.model.chunks import valid_keys
from asrkit.model.positions import build_positions

KERNELS, BLOCKS = "asrkit, kernels", "asrkit, block by block"
PLAIN = "torch, no positions, full context"
Attention = Callable[[Tensor], Tensor]  # (B, T, D) -> (B, T, D)


def ours(layer: ChunkAttention, chunk_size: int, left_context: int, kernels: bool) -> Attention:
    """A layer in its context, by the kernels or without them."""

    def attend(x: Tensor) -> Tensor:
        batch, frames, _ = x.shape
        position, lengths = x.new_zeros(batch).long(), x.new_full([batch], frames).long()
        valid = valid_keys(position, lengths, Context(chunk_size, left_context), frames)
        past = x.new_zeros(batch, NUM_HEADS, left_context, DIM // NUM_HEADS)
        layer.kernels = kernels
        table = layer.position.table(left_context, chunk_size, x)
        return layer(x, LayerStep(valid, x[:, :, :0], 0), table, past, past)[0]

    return attend


def plain(layer: ChunkAttention, x: Tensor) -> Tensor:
    """The same products, torch's attention between them."""
    q, k, v = (
        part.unflatten(2, (NUM_HEADS, -1)).transpose(1, 2) for part in layer.qkv(x).chunk(3, dim=2)
    )
    return layer.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


@torch.inference_mode(False)
def measured(attend: Attention, x: Tensor, backward: bool, peaks: list[float]) -> list[float]:
    """Seconds of one pass; its peak memory in MB goes to `peaks` where the device counts it."""
    on_gpu = x.is_cuda
    with torch.set_grad_enabled(backward):
        x = x.clone().requires_grad_(backward)
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        started = time.perf_counter()
        y = attend(x)
        if backward:
            y.sum().backward()
        if on_gpu:
            torch.cuda.synchronize()
            peaks.append((torch.cuda.max_memory_allocated() - before) / 1e6)
        return [time.perf_counter() - started]


def measure(frames: int, context: str, backward: bool, options: argparse.Namespace) -> list[Row]:
    """A row of the table for each contender."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if options.bfloat16 else torch.float32
    layer = ChunkAttention(
        DIM, NUM_HEADS, 0.0, build_positions("relative", DIM, NUM_HEADS, 1)[1][0]
    ).to(options.device, dtype)
    x = torch.randn(options.batch, frames, DIM, device=options.device, dtype=dtype)
    sizes = (CHUNK_SIZE, LEFT_CONTEXT) if context == "chunks" else (frames, 0)
    contenders = {BLOCKS: ours(layer, *sizes, kernels=False), PLAIN: partial(plain, layer)}
    if x.is_cuda:
        contenders[KERNELS] = ours(layer, *sizes, kernels=True)
    peaks: dict[str, list[float]] = {name: [] for name in contenders}
    passes = {
        name: partial(measured, contenders[name], x, backward, peaks[name])
        for name in chosen(contenders, options)
    }
    label = f"{frames} frames, {context}"
    results = round_robin(passes, options.rounds, True, options.limit, label)
    rows = compared(
        results, BLOCKS, lambda seconds: {"ms": 1000 * statistics.median(seconds)},
        frames=frames, context=context, backward="yes" if backward else "no",
    )  # fmt: skip
    for row in rows:
        row["peak memory, MB"] = max(peaks[str(row["contender"])], default=None)
    return rows


def main() -> None:
    arguments = parser(
        "One layer's attention, forward and backward.",
        "python tools/benchmarks/bench_attention.py --device cuda --bfloat16 --frames 1500 6000",
    )
    arguments.add_argument("--device", default="cpu", help="device of torch (default cpu)")
    arguments.add_argument("--batch", type=int, default=8, help="rows (default 8)")
    arguments.add_argument(
        "--frames", type=int, nargs="+", default=[1600], help="encoder frames, multiples of 16"
    )
    arguments.add_argument("--bfloat16", action="store_true", help="weights and frames")
    options = arguments.parse_args()
    if options.quick:
        options.batch, options.frames = 2, [64]
    torch.set_num_threads(options.threads[-1])
    facts = environment(options)
    if torch.cuda.is_available():
        facts["GPU"] = torch.cuda.get_device_name()
    rows = [
        row
        for frames in options.frames
        for context in ("full", "chunks")
        for backward in (False, True)
        for row in measure(frames, context, backward, options)
    ]
    report(
        f"Attention: {options.batch} rows, D {DIM}, {NUM_HEADS} heads", facts, rows, options.json
    )


if __name__ == "__main__":
    main()
