"""Measure the time of a streaming encoder's chunk of 640 ms, on each backend and beside peers.

One stream, from log mels, random weights. An Emformer has no convolution module and one
feed-forward layer a layer: it takes twice the layers to have as many weights. speechbrain and ONNX
Runtime are measured where they are installed; exporting takes a minute.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks import (
    CHUNK_FEATS,
    CHUNK_MS,
    CHUNK_SIZE,
    LEFT_CONTEXT,
    LEFT_MS,
    QUICK_SECONDS,
    Row,
    TensorStep,
    chosen,
    compared,
    environment,
    parser,
    random_feats,
    reference_file,
    reference_layers,
    report,
    round_robin,
)
from peers import EmformerStep, SpeechBrainStep
from torch import Tensor

from asrkit.backends import onnx as onnx_files
from asrkit.backends.export_metadata import Exported
from asrkit.export import int8, onnx, torchscript
from asrkit.export.verification import eager_step
from asrkit.model import Context

EXPORTED = Exported("encoder", Context(CHUNK_SIZE, LEFT_CONTEXT))
EAGER = "asrkit"  # what asrkit.load runs without an export, and what the others are compared with


class Contender(NamedTuple):
    step: Any  # called as a Step is
    parameters: int


class Contenders:
    """Builds what is measured, each when it is asked for; threads are those of that moment."""

    def __init__(self, num_layers: int, folder: Path) -> None:
        self.layers, self.folder = num_layers, folder
        self.file = reference_file(num_layers)
        self.eager = eager_step(self.file, EXPORTED)
        frozen = "asrkit, TorchScript frozen"
        self.builders: dict[str, Callable[[], Any]] = {
            EAGER: lambda: self.eager,
            frozen: self.frozen,
        }
        if all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))):
            self.builders["asrkit, ONNX Runtime"] = lambda: read(self.exported)
            self.builders["asrkit, ONNX Runtime int8"] = lambda: read(self.quantized)
        for layers in (num_layers, 2 * num_layers):
            self.builders[f"torchaudio Emformer, {layers} layers"] = partial(EmformerStep, layers)
        scripted = f"torchaudio Emformer, {2 * num_layers} layers, TorchScript"
        self.builders[scripted] = partial(EmformerStep, 2 * num_layers, scripted=True)
        if find_spec("speechbrain"):
            self.builders["speechbrain Conformer"] = partial(SpeechBrainStep, num_layers)

    def build(self, name: str) -> Contender:
        step = self.builders[name]()
        built = step.eval() if isinstance(step, (EmformerStep, SpeechBrainStep)) else self.eager
        return Contender(step, sum(parameter.numel() for parameter in built.parameters()))

    def frozen(self) -> torch.jit.ScriptModule:
        return torch.jit.freeze(torchscript.script(self.eager), preserved_attrs=["init_state"])

    @cached_property
    def exported(self) -> Path:
        onnx.write(self.eager, self.folder / "encoder.onnx", EXPORTED, self.file)
        return self.folder / "encoder.onnx"

    @cached_property
    def quantized(self) -> Path:
        observed = int8.ObservedStep(self.exported, self.eager)
        stream(
            TensorStep(observed), list(random_feats(8 * CHUNK_MS / 1000).split(CHUNK_FEATS, dim=1))
        )
        path = Path(shutil.copy(self.exported, self.folder / "encoder.int8.onnx"))
        int8.quantize(path, self.eager, observed.ranges)
        return path


def read(path: Path) -> TensorStep:
    return TensorStep(onnx_files.read(path, torch.get_num_threads())[0])


def stream(step: Any, chunks: list[Tensor]) -> list[float]:
    """Seconds of each chunk of one stream."""
    state = step.init_state(1)
    lengths = torch.tensor([CHUNK_FEATS])
    seconds = []
    for chunk in chunks:
        started = time.perf_counter()
        _, _, state = step(chunk, lengths, state)
        seconds.append(time.perf_counter() - started)
    return seconds


def measure(
    contenders: Contenders, chunks: list[Tensor], threads: int, options: argparse.Namespace
) -> list[Row]:
    """A row of the table for each contender."""
    torch.set_num_threads(threads)
    steps = {name: contenders.build(name) for name in chosen(contenders.builders, options)}
    passes = {name: partial(stream, contender.step, chunks) for name, contender in steps.items()}
    results = round_robin(passes, options.rounds, True, options.limit, f"threads {threads}")
    rows = compared(results, EAGER, cells, threads=threads)
    for row in rows:
        row["parameters, M"] = steps[str(row["contender"])].parameters / 1e6
    return rows


def cells(seconds: list[float]) -> Row:
    ms = [1000 * each for each in seconds]
    return {
        "median, ms": statistics.median(ms), "p95, ms": float(np.percentile(ms, 95)),
        "min, ms": min(ms), "RTF": statistics.median(ms) / CHUNK_MS,
    }  # fmt: skip


def main() -> None:
    arguments = parser(
        f"Time of a {CHUNK_MS} ms chunk of one stream, on each backend and beside peers.",
        "python tools/benchmarks/bench_stream.py --threads 1 2 --json exp/bench_stream.json",
    )
    arguments.add_argument(
        "--seconds", type=float, default=60.0, help="length of the stream (default 60)"
    )
    options = arguments.parse_args()
    facts = environment(options)
    seconds = QUICK_SECONDS if options.quick else options.seconds
    feats = random_feats(seconds)
    chunks = [chunk for chunk in feats.split(CHUNK_FEATS, 1) if chunk.size(1) == CHUNK_FEATS]
    if not chunks:
        arguments.error(f"--seconds must be at least {CHUNK_MS / 1000}, got {seconds:g}")
    with tempfile.TemporaryDirectory() as folder:
        built = Contenders(reference_layers(options), Path(folder))
        rows = [row for count in options.threads for row in measure(built, chunks, count, options)]
    title = f"Streaming: a chunk of {CHUNK_MS} ms, left context {LEFT_MS} ms"
    report(title, facts, rows, options.json)


if __name__ == "__main__":
    main()
