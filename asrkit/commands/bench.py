"""Measure a model's speed on each backend here: asrkit bench --model MODEL"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from asrkit.cli.options import add_context, add_device, add_model_file
from asrkit.cli.parser import Parser, whole
from asrkit.errors import UserError

if TYPE_CHECKING:
    from asrkit.runtime import Recognizer


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit bench", __doc__,
        "asrkit bench --model small-en-alnum --threads 1,2 --streams 1,8,32\n"
        "  asrkit bench --model exp/mine/model.safetensors --backends eager,onnx",
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
    return arguments.run(bench, argv)


def counts(text: str) -> list[int]:
    """Parse numbers separated by commas."""
    return [whole(1, 100_000)(part) for part in text.split(",")]


WARM_UP, CHUNKS = 3, 100  # chunks of each stream that are not timed, and that are


TITLES = "backend", "threads", "streams", "load s", "p50 ms", "p95 ms", "p99 ms", "streams a core"


def bench(options: argparse.Namespace) -> int:
    from asrkit.backends import BACKENDS
    from asrkit.cli.recognizer import context_of
    from asrkit.evaluation.tables import table
    from asrkit.runtime import recognizer_of
    from asrkit.runtime.load import load_runnable

    file = load_runnable(options.model)
    context = context_of(options, file)
    if context.full:
        raise UserError("--chunk-ms must be a chunk, got full: bench measures streams")
    rows = []
    for threads in options.threads:
        for backend in options.backends or BACKENDS:
            start = time.perf_counter()
            try:
                made = recognizer_of(
                    file, context, device=options.device, backend=backend, threads=threads
                )
            except UserError as error:
                if options.backends:
                    raise
                if threads == options.threads[0]:
                    print(f"not measured: {error}", file=sys.stderr)
                continue
            load = f"{time.perf_counter() - start:.4g}"
            for streams in options.streams:
                times = times_of(made, threads, streams)
                cells = (f"{each:.4g}" for each in times)
                rows.append([backend, str(threads), str(streams), load, *cells])
    if not rows:
        raise UserError("no backend runs this model here")
    print(table(TITLES, rows))
    return 0


def times_of(recognizer: Recognizer, threads: int, streams: int) -> list[float]:
    """Return percentiles of the ms of a chunk of all streams, which share steps; streams a core."""
    import numpy as np

    from asrkit import audio

    found = 1000 * np.percentile(seconds_of(recognizer, streams), (50, 95, 99))
    chunk_ms = 1000 * audio.HOP * recognizer.engine.spec.chunk_frames / audio.SAMPLE_RATE
    return [*map(float, found), streams * chunk_ms / float(found[0]) / threads]


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
