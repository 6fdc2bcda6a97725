"""Measure a model's speed on each backend here: asrkit bench --model MODEL"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from asrkit.atomic_write import write_text
from asrkit.cli.options import add_context, add_device, add_model_file
from asrkit.cli.parser import Parser, Target, whole
from asrkit.cli.progress import bar
from asrkit.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from asrkit.model_file import ModelFile
    from asrkit.runtime import Recognizer


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit bench", __doc__,
        "asrkit bench --model small-en-alnum --threads 1,2 --streams 1,8,32\n"
        "  asrkit bench --model exp/mine/model.safetensors --backends eager,onnx --json b.json",
    )  # fmt: skip
    add_model_file(arguments)
    add_device(arguments)
    add_context(arguments)
    arguments.add_argument(
        "--backends", type=lambda text: text.split(","), metavar="KIND,…",
        help="some of eager, compiled, onnx, onnx-int8 (default: all available ones except "
        "compiled)",
    )  # fmt: skip
    arguments.add_argument(
        "--threads", type=counts, default=[1], metavar="N,…",
        help="CPU threads, such as 1,2 (default 1)",
    )  # fmt: skip
    arguments.add_argument(
        "--streams", type=counts, default=[1, 8], metavar="N,…",
        help="numbers of streams (default 1,8)",
    )  # fmt: skip
    arguments.add_argument("--json", type=Target, metavar="FILE", help="write results there, too")
    return arguments.run(bench, argv)


def counts(text: str) -> list[int]:
    """Parse numbers separated by commas."""
    return [whole(1, 100_000)(part) for part in text.split(",")]


WARM_UP, TURN, TURNS = 3, 10, 10  # chunks; backends are measured in turns, so that drift is equal


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
    from asrkit.cli.recognizer import context_of, load_file
    from asrkit.evaluation.tables import table

    file = load_file(options)
    if context_of(options, file).full:
        raise UserError("--chunk-ms must be a chunk, got full: bench measures streams")
    facts = facts_of(options, file)
    print("\n".join(f"{name:<12}{fact}" for name, fact in facts.items()), flush=True)
    rows: list[Row] = []
    for threads in options.threads:
        recognizers = at_hand(options, file, threads)
        for streams in bar(options.streams, f"{threads} threads", "measurement"):
            rows += rows_of(recognizers, threads, streams)
    cells = [[f"{x:.4g}" if isinstance(x, float) else str(x) for x in row] for row in rows]
    print(table([name.replace("_", " ") for name in Row._fields], cells))
    if options.json:
        found = {**facts, "rows": [row._asdict() for row in rows]}
        write_text(options.json, json.dumps(found, indent=1))
    return 0


def facts_of(options: argparse.Namespace, file: ModelFile) -> dict[str, str]:
    """Return size, latency and state of a model, which are not timed."""
    from asrkit import audio

    engine = recognizer(options, file, "eager").engine
    spec = engine.spec
    chunk, left, right = (frames * spec.rate.frame_ms for frames in spec.context)
    window_ms, hop_ms = audio.WINDOW // 16, audio.HOP // 16
    soonest = right + window_ms - hop_ms
    after = f" and {right} ms after them" if right else ""
    state = sum(each.numel() * each.element_size() for each in engine.init_state(1))
    return {
        "model": f"{options.model}, {file.num_parameters / 1e6:.2f} M parameters",
        "chunks": f"{chunk} ms with {left} ms before them{after}",
        "latency": f"{soonest} to {chunk + soonest} ms, and the time of a step: a window of "
        f"{window_ms} ms every {hop_ms} ms, {spec.rate.factor} in a frame, "
        f"{spec.context.chunk_size} frames in a chunk",
        "state": f"{state / 1e6:.2f} MB a stream",
    }


def recognizer(options: argparse.Namespace, file: ModelFile, backend: str) -> Recognizer:
    from asrkit.cli.recognizer import context_of
    from asrkit.runtime import recognizer_of

    return recognizer_of(file, context_of(options, file), device=options.device, backend=backend)


def at_hand(
    options: argparse.Namespace, file: ModelFile, threads: int
) -> dict[str, tuple[Recognizer, float]]:
    """Return the recognisers to measure, with the seconds that each took to load."""
    import torch

    from asrkit.backends import BACKENDS

    torch.set_num_threads(threads)
    found = {}
    for name in options.backends or [name for name in BACKENDS if name != "compiled"]:
        start = time.perf_counter()
        try:
            found[name] = recognizer(options, file, name), time.perf_counter() - start
        except UserError as error:
            if options.backends:
                raise
            if threads == options.threads[0]:
                print(f"not measured: {error}", file=sys.stderr)
    return found


def rows_of(
    recognizers: dict[str, tuple[Recognizer, float]], threads: int, streams: int
) -> list[Row]:
    import numpy as np

    from asrkit import audio

    runs = {name: Run(built, threads, streams) for name, (built, _) in recognizers.items()}
    for _ in range(TURNS):
        for run in runs.values():
            run.go(TURN)
    rows = []
    for name, run in runs.items():
        p50, p95, p99 = (float(np.percentile(run.seconds, q)) for q in (50, 95, 99))
        share = p50 / streams / (run.chunk_samples / audio.SAMPLE_RATE)
        ms, load = (1000 * p50, 1000 * p95, 1000 * p99), recognizers[name][1]
        rows.append(Row(name, threads, streams, load, *ms, share, 1 / share / threads))
    return rows


class Run:
    """Streams that receive a chunk at a time, and the seconds until all have their results."""

    def __init__(self, recognizer: Recognizer, threads: int, streams: int) -> None:
        import numpy as np

        from asrkit import audio
        from asrkit.runtime import Batcher

        self.recognizer, self.threads = recognizer, threads
        self.batcher = Batcher(recognizer, streams)
        self.sessions = [self.batcher.start() for _ in range(streams)]
        self.draw = np.random.default_rng(0)
        spec, frontend = recognizer.engine.spec, recognizer.engine.frontend
        self.chunk_samples = audio.HOP * spec.chunk_frames
        first = frontend.frame_size - audio.HOP - frontend.before + audio.HOP * spec.ahead_frames
        for session in self.sessions:  # from here on, a chunk of samples is a chunk of frames
            session.accept(self.noise(first % self.chunk_samples))
        self.seconds: list[float] = []
        self.go(WARM_UP)
        self.seconds.clear()

    def noise(self, count: int) -> np.ndarray:
        import numpy as np

        return 0.1 * self.draw.standard_normal(count, dtype=np.float32)

    def go(self, chunks: int) -> None:
        from asrkit.runtime.threads import leave_cores

        leave_cores(self.recognizer.backend.kind, self.threads)
        for chunk in range(-1, chunks):  # during the first, threads of other runs may still wait
            samples = [self.noise(self.chunk_samples) for _ in self.sessions]
            start = time.perf_counter()
            for session, packet in zip(self.sessions, samples, strict=True):
                session.accept(packet)
            served = len(self.batcher.step())
            if chunk >= 0:
                self.seconds.append(time.perf_counter() - start)
            assert served == len(self.sessions)
