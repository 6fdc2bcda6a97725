"""Measure a model's speed on each backend here: asrkit bench --model MODEL"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from asrkit.cli.options import add_context, add_device, add_model_file
from asrkit.cli.parser import Parser, whole
from asrkit.errors import UserError

if TYPE_CHECKING:
    from asrkit.runtime import Recognizer


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit bench", __doc__,
        "asrkit bench --model small-en-alnum --threads 1,2 --streams 1,8,32\n"
        "  asrkit bench --model exp/mine/model.safetensors --backends eager,onnx --format json",
    )  # fmt: skip
    add_model_file(arguments)
    add_device(arguments)
    add_context(arguments)
    arguments.add_argument(
        "--backends", type=lambda text: text.split(","), metavar="KIND,…",
        help="some of eager, onnx, onnx-int8 (default: all available ones)",
    )  # fmt: skip
    arguments.add_argument(
        "--threads", type=counts, default=[1], metavar="N,…",
        help="CPU threads, such as 1,2 (default 1)",
    )  # fmt: skip
    arguments.add_argument(
        "--streams", type=counts, default=[1, 8], metavar="N,…",
        help="numbers of streams (default 1,8)",
    )  # fmt: skip
    arguments.add_argument("--format", choices=["text", "json"], default="text")
    return arguments.run(bench, argv)


def counts(text: str) -> list[int]:
    """Parse numbers separated by commas."""
    return [whole(1, 100_000)(part) for part in text.split(",")]


WARM_UP, CHUNKS = 3, 100  # chunks of each stream that are not timed, and that are


class Row(NamedTuple):
    """Times for a chunk of each of several streams, from samples to results."""

    backend: str
    threads: int
    streams: int
    load_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    real_time_factor: float  # for one stream
    streams_a_core: float  # number of streams that are in real time at p50


def bench(options: argparse.Namespace) -> int:
    import torch

    from asrkit.backends import BACKENDS
    from asrkit.cli.recognizer import context_of, load_file
    from asrkit.evaluation.tables import table
    from asrkit.runtime import recognizer_of

    file = load_file(options)
    context = context_of(options, file)
    if context.full:
        raise UserError("--chunk-ms must be a chunk, got full: bench measures streams")
    facts = facts_of(recognizer_of(file, context, device=options.device))
    if options.format == "text":
        print("\n".join(f"{name:<12}{fact}" for name, fact in facts.items()), flush=True)
    rows: list[Row] = []
    for threads in options.threads:
        for backend in options.backends or BACKENDS:
            torch.set_num_threads(threads)
            start = time.perf_counter()
            try:
                made = recognizer_of(file, context, device=options.device, backend=backend)
            except UserError as error:
                if options.backends:
                    raise
                if threads == options.threads[0]:
                    print(f"not measured: {error}", file=sys.stderr)
                continue
            load = time.perf_counter() - start
            rows += [row_of(made, load, backend, threads, streams) for streams in options.streams]
    if options.format == "json":
        print(json.dumps({**facts, "rows": [row._asdict() for row in rows]}, indent=1))
        return 0
    cells = [[f"{x:.4g}" if isinstance(x, float) else str(x) for x in row] for row in rows]
    print(table([name.replace("_", " ") for name in Row._fields], cells))
    return 0


def facts_of(recognizer: Recognizer) -> dict[str, str]:
    """Return context, latency and state of a model, which are not timed."""
    from asrkit import audio

    engine = recognizer.engine
    spec = engine.spec
    chunk, left, right = (frames * spec.rate.frame_ms for frames in spec.context)
    soonest = right + (audio.WINDOW - audio.HOP) // 16
    after = f" and {right} ms after them" if right else ""
    state = sum(each.numel() * each.element_size() for each in engine.init_state(1))
    return {
        "chunks": f"{chunk} ms with {left} ms before them{after}",
        "latency": f"{soonest} to {chunk + soonest} ms, and the time of a step",
        "state": f"{state / 1e6:.2f} MB a stream",
    }


def row_of(recognizer: Recognizer, load: float, backend: str, threads: int, streams: int) -> Row:
    """Measure streams that share steps."""
    import numpy as np

    from asrkit import audio
    from asrkit.runtime.threads import leave_cores

    leave_cores(recognizer.backend.kind, threads)
    p50, p95, p99 = (
        1000 * float(each) for each in np.percentile(seconds_of(recognizer, streams), (50, 95, 99))
    )
    chunk_ms = 1000 * audio.HOP * recognizer.engine.spec.chunk_frames / audio.SAMPLE_RATE
    share = p50 / streams / chunk_ms
    return Row(backend, threads, streams, load, p50, p95, p99, share, 1 / share / threads)


def seconds_of(recognizer: Recognizer, streams: int) -> list[float]:
    """Return the seconds from a chunk of each stream until all have their results."""
    import numpy as np

    from asrkit import audio
    from asrkit.runtime import Batcher

    batcher, draw, seconds = Batcher(recognizer, streams), np.random.default_rng(0), []
    sessions = [batcher.start() for _ in range(streams)]
    spec, frontend = recognizer.engine.spec, recognizer.engine.frontend
    size = audio.HOP * spec.chunk_frames
    # After this past, a chunk of samples is a chunk of frames.
    past = frontend.frame_size - audio.HOP - frontend.before + audio.HOP * spec.ahead_frames
    for chunk in range(-1 - WARM_UP, CHUNKS):
        count = past % size if chunk < -WARM_UP else size
        packets = [0.1 * draw.standard_normal(count, dtype=np.float32) for _ in sessions]
        start = time.perf_counter()
        for session, packet in zip(sessions, packets, strict=True):
            session.accept(packet)
        served = len(batcher.step())
        if chunk >= 0:
            seconds.append(time.perf_counter() - start)
        assert chunk < -WARM_UP or served == streams
    return seconds
