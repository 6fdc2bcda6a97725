"""How long a streaming encoder takes for a chunk of 640 ms, beside torchaudio's Emformer.

One stream, from log mels, random weights, float32. The Emformer has no convolution module and
one feed-forward layer a layer: it takes twice the layers to have as many weights.
"""

import argparse
import statistics
import time
import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from benchmarks import (
    CHUNK_SIZE,
    DIM,
    FFN_DIM,
    LEFT_CONTEXT,
    NUM_HEADS,
    QUICK_SECONDS,
    Failure,
    Row,
    Subsampling,
    environment,
    parser,
    random_feats,
    ratio,
    reference_encoder,
    reference_layers,
    report,
    round_robin,
)
from torch import Tensor, nn
from torchaudio.models import Emformer

from asrkit.model import EncoderStep

CHUNK_MS = 40 * CHUNK_SIZE
EAGER = "asrkit"  # what asrkit.load runs, and what the others are compared with

EmformerState = tuple[tuple[Tensor, Tensor], list[list[Tensor]] | None]


class EmformerStep(nn.Module):
    """An Emformer behind asrkit's subsampling, called as an `EncoderStep` is."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.subsampling = Subsampling()
        self.emformer = Emformer(
            DIM, NUM_HEADS, FFN_DIM, num_layers, CHUNK_SIZE, left_context_length=LEFT_CONTEXT
        )

    def init_state(self, batch_size: int) -> EmformerState:
        assert batch_size == 1
        return self.subsampling.init_past(), None

    def forward(
        self, feats: Tensor, lengths: Tensor, state: EmformerState
    ) -> tuple[Tensor, Tensor, EmformerState]:
        """(1, 4·C, F), (1,) and the past -> (1, C, D), (1,) and the new past."""
        x, *past = self.subsampling(feats, *state[0])
        encoded, lengths, layers = self.emformer.infer(x, lengths // 4, state[1])
        return encoded, lengths, ((past[0], past[1]), layers)


class Contender(NamedTuple):
    step: nn.Module
    parameters: int  # of the module as it was built: freezing makes constants of them


def contenders(num_layers: int) -> dict[str, Contender]:
    """What is measured, by name."""
    eager = EncoderStep(reference_encoder(num_layers), CHUNK_SIZE, LEFT_CONTEXT).eval()
    with warnings.catch_warnings():  # torch announces the end of TorchScript at every call
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(eager)
        frozen = torch.jit.freeze(scripted, preserved_attrs=["init_state"])
    modules: dict[str, tuple[nn.Module, nn.Module]] = {
        EAGER: (eager, eager),
        "asrkit, TorchScript": (scripted, eager),
        "asrkit, TorchScript frozen": (frozen, eager),
    }
    for layers in (num_layers, 2 * num_layers):
        emformer = EmformerStep(layers).eval()
        modules[f"torchaudio Emformer, {layers} layers"] = emformer, emformer
    return {
        name: Contender(step, sum(parameter.numel() for parameter in built.parameters()))
        for name, (step, built) in modules.items()
    }


def stream(step: nn.Module, chunks: list[Tensor]) -> list[float]:
    """Seconds of each chunk of one stream."""
    state = step.init_state(1)  # type: ignore[operator]
    lengths = torch.tensor([4 * CHUNK_SIZE])
    seconds = []
    for chunk in chunks:
        started = time.perf_counter()
        _, _, state = step(chunk, lengths, state)
        seconds.append(time.perf_counter() - started)
    return seconds


def measure(
    steps: dict[str, Contender], chunks: list[Tensor], threads: int, options: argparse.Namespace
) -> list[Row]:
    """A row of the table for each contender."""
    torch.set_num_threads(threads)
    passes = {name: partial(stream, contender.step, chunks) for name, contender in steps.items()}
    results = round_robin(passes, options.rounds, True, options.limit, f"threads {threads}")
    rows: list[Row] = []
    for name, contender in steps.items():
        result = results[name]
        row: Row = {"threads": threads, "contender": name}
        row["parameters, M"] = contender.parameters / 1e6
        if isinstance(result, Failure):
            row |= {"median, ms": result.reason}
            row |= dict.fromkeys(("p95, ms", "min, ms", "RTF", f"× {EAGER}"))
        else:
            ms = [1000 * seconds for pass_ in result for seconds in pass_]
            row["median, ms"] = statistics.median(ms)
            row["p95, ms"] = float(np.percentile(ms, 95))
            row["min, ms"] = min(ms)
            row["RTF"] = statistics.median(ms) / CHUNK_MS
            row[f"× {EAGER}"] = ratio(result, results[EAGER])
        rows.append(row)
    return rows


def main() -> None:
    arguments = parser(
        f"Time of a {CHUNK_MS} ms chunk of one stream, beside torchaudio's Emformer.",
        "python tools/bench_stream.py --threads 1 2 --json exp/bench_stream.json",
    )
    arguments.add_argument(
        "--seconds", type=float, default=60.0, help="length of the stream (default 60)"
    )
    options = arguments.parse_args()
    facts = environment(options)
    seconds = QUICK_SECONDS if options.quick else options.seconds
    feats = random_feats(seconds)
    chunks = [chunk for chunk in feats.split(4 * CHUNK_SIZE, 1) if chunk.size(1) == 4 * CHUNK_SIZE]
    if not chunks:
        arguments.error(f"--seconds must be at least {CHUNK_MS / 1000}, got {seconds:g}")
    steps = contenders(reference_layers(options))
    rows = [row for threads in options.threads for row in measure(steps, chunks, threads, options)]
    title = f"Streaming: a chunk of {CHUNK_MS} ms, left context {40 * LEFT_CONTEXT} ms"
    report(title, facts, rows, options.json)


if __name__ == "__main__":
    main()
