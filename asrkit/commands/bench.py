"""Measure a model's speed on each backend here: asrkit bench --model MODEL"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from asrkit.atomic_write import replacing
from asrkit.cli.choices import BACKENDS
from asrkit.cli.options import add_device, add_model_file, add_right_context, add_second_pass
from asrkit.cli.parser import Parser, Target, whole
from asrkit.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from asrkit.model_file import ModelFile
    from asrkit.runtime import Recognizer


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit bench", __doc__,
        "asrkit bench --model small-en-alnum --threads 1,2 --streams 1,8,32\n"
        "  asrkit bench --model exp/mine/model.safetensors --backends eager,onnx --json b.json\n"
        "  asrkit bench --model small-en-alnum --chunk-ms 320 --second-pass full",
    )  # fmt: skip
    add_model_file(arguments)
    add_device(arguments)
    arguments.add_argument("--chunk-ms", help="chunk in ms (default: the model's)")
    arguments.add_argument("--left-ms", help="left context in ms (default: the model's)")
    add_right_context(arguments)
    arguments.add_argument(
        "--backends", type=names,
        help=f"some of {', '.join(BACKENDS)} (default: all available ones except compiled)",
    )  # fmt: skip
    arguments.add_argument(
        "--threads", type=counts, default=[1], metavar="N,…",
        help="CPU threads, such as 1,2 (default 1)",
    )  # fmt: skip
    arguments.add_argument(
        "--streams", type=counts, default=[1, 8], metavar="N,…",
        help="numbers of streams (default 1,8)",
    )  # fmt: skip
    arguments.add_argument(
        "--batchers", type=whole(1, 1024), default=1, metavar="N",
        help="batchers that share the streams, each in its own thread with --threads threads"
        " (default 1; one per core with --threads 1 serves most streams)",
    )  # fmt: skip
    arguments.add_argument(
        "--chunks",
        type=whole(1, 10**9),
        default=100,
        metavar="N",
        help="chunks of each stream (default 100)",
    )
    add_second_pass(arguments, search=False)  # only the network is timed
    arguments.add_argument(
        "--json", type=Target, metavar="FILE", help="write the results there, too"
    )
    return arguments.run(bench, argv)


def names(text: str) -> list[str]:
    return text.split(",")


def counts(text: str) -> list[int]:
    """Parse numbers separated by commas."""
    return [whole(1, 100_000)(part) for part in text.split(",")]


WARM_UP = 3  # chunks, or segments
SEGMENT_S, SECOND_TURNS = 5, 15


class Row(NamedTuple):
    """Times for a chunk of each of several streams, from samples to results."""

    backend: str
    threads: int  # threads of each batcher
    streams: int  # streams of all batchers
    load_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    real_time_factor: float  # for one stream
    streams_a_core: float  # number of streams that are in real time at p50


class SecondPassTime(NamedTuple):
    """CPU time of the network for a segment of SEGMENT_S seconds."""

    first_ms: float  # chunk by chunk
    second_ms: float  # again, in the larger context

    def __str__(self) -> str:
        share = self.second_ms / self.first_ms
        return (
            f"a segment of {SEGMENT_S} s: {self.first_ms:.0f} ms of CPU time in chunks, "
            f"{self.second_ms:.0f} ms in the second pass, {share:.2f} of that"
        )


def bench(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from asrkit.model_file import load_model

    file = load_model(options.model)
    facts = facts_of(options, file)
    print("\n".join(f"{name:<12}{fact}" for name, fact in facts.items()), flush=True)
    rows: list[Row] = []
    seconds: dict[str, SecondPassTime] = {}
    bar = tqdm(total=len(options.threads) * len(options.streams), disable=None, leave=False)
    for threads in options.threads:
        recognizers = at_hand(options, file, threads)
        if options.second_pass != "off" and not seconds:
            seconds = second_passes(recognizers, threads)
        for streams in options.streams:
            rows += rows_of(recognizers, threads, streams, options.chunks, options.batchers)
            bar.update()
    bar.close()
    print(rows_table(rows))
    for name, each in seconds.items():
        print(f"{name:<12}{each}")
    if options.json:
        with replacing(options.json) as temporary:
            found = {
                "rows": [row._asdict() for row in rows],
                "second_passes": {name: each._asdict() for name, each in seconds.items()},
            }
            temporary.write_text(json.dumps({**facts, **found}, indent=1), encoding="utf-8")
    return 0


def facts_of(options: argparse.Namespace, file: ModelFile) -> dict[str, str]:
    """Return size, latency and state of a model, which are not timed."""
    from asrkit import audio

    plain = recognizer(options, file, "eager")
    spec = plain.engine.spec
    chunk, left, right = (frames * spec.rate.frame_ms for frames in spec.context)
    window_ms, hop_ms = audio.WINDOW // 16, audio.HOP // 16
    soonest = right + window_ms - hop_ms
    after = f" and {right} ms after them" if right else ""
    state = sum(each.numel() * each.element_size() for each in plain.engine.init_state(1))
    return {
        "model": f"{options.model}, {file.num_parameters / 1e6:.2f} M parameters",
        "chunks": f"{chunk} ms with {left} ms before them{after}",
        "latency": f"{soonest} to {chunk + soonest} ms, and the time of a step: a window of "
        f"{window_ms} ms every {hop_ms} ms, {spec.rate.factor} in a frame, "
        f"{spec.context.chunk_size} frames in a chunk",
        "state": f"{state / 1e6:.2f} MB a stream",
        "batchers": f"{options.batchers}, a thread each, which share the streams",
    }


def recognizer(options: argparse.Namespace, file: ModelFile, backend: str) -> Recognizer:
    from asrkit.cli.recognizer import context_of, second_pass_of
    from asrkit.runtime import recognizer_of

    second_pass, _ = second_pass_of(options, file)
    return recognizer_of(
        file,
        context_of(options, file),
        backend=backend,
        second_pass=second_pass,
        device=options.device,
    )


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
            built = recognizer(options, file, name)
        except UserError as error:
            if options.backends:
                raise
            if threads == options.threads[0]:
                print(f"not measured: {error}", file=sys.stderr)
            continue
        found[name] = built, time.perf_counter() - start
    return found


def rows_of(
    recognizers: dict[str, tuple[Recognizer, float]],
    threads: int,
    streams: int,
    chunks: int,
    batchers: int = 1,
) -> list[Row]:
    """Measure backends in turns of ten chunks each, so that drift affects all equally."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    from asrkit import audio

    sizes = [len(part) for part in np.array_split(range(streams), min(batchers, streams))]
    groups = {
        name: [Run(built, threads, size) for size in sizes]
        for name, (built, _) in recognizers.items()
    }
    with ThreadPoolExecutor(len(sizes)) as pool:
        for start in range(0, chunks, 10):
            for runs in groups.values():
                list(pool.map(Run.go, runs, [min(10, chunks - start)] * len(runs)))
    rows = []
    for name, runs in groups.items():
        seconds = [each for run in runs for each in run.seconds]
        p50, p95, p99 = (float(np.percentile(seconds, q)) for q in (50, 95, 99))
        share = p50 / streams / (runs[0].chunk_samples / audio.SAMPLE_RATE)
        ms = (1000 * p50, 1000 * p95, 1000 * p99)
        per_core = 1 / share / (threads * len(sizes))
        rows.append(Row(name, threads, streams, recognizers[name][1], *ms, share, per_core))
    return rows


def second_passes(
    recognizers: dict[str, tuple[Recognizer, float]], threads: int
) -> dict[str, SecondPassTime]:
    """Measure a segment in both passes on each backend; passes and backends in turns."""
    import numpy as np

    from asrkit.runtime.threads import leave_cores

    found: dict[str, list[tuple[float, float]]] = {name: [] for name in recognizers}
    for turn in range(WARM_UP + SECOND_TURNS):
        for name, (built, _) in recognizers.items():
            leave_cores(built.backend.kind, threads)
            times = segment_times(built)
            found[name] += [times] if turn >= WARM_UP else []
    return {
        name: SecondPassTime(*(1000 * float(np.median(each)) for each in zip(*times, strict=True)))
        for name, times in found.items()
    }


def segment_times(recognizer: Recognizer) -> tuple[float, float]:
    """Return the CPU seconds for a segment's features, chunk by chunk and in the second pass."""
    import numpy as np
    import torch

    from asrkit.model.subsampling import split_steps

    first, second = recognizer.engine, recognizer.decoding.second
    assert second is not None
    noise = np.random.default_rng(0).standard_normal((SEGMENT_S * 100, first.spec.num_mels))
    feats, state = torch.from_numpy(10 + 3 * noise).float(), first.init_state(1)
    start = time.process_time()
    chunk_frames, ahead = first.spec.chunk_frames, first.spec.ahead_frames
    for chunk, _ in split_steps(feats[None], chunk_frames, first.spec.rate.lookahead, ahead):
        _, state = first.step_of([*chunk], state)
    middle = time.process_time()
    second.engine.step_of([feats], second.engine.init_state(1))
    return middle - start, time.process_time() - middle


class Run:
    """Streams that receive a chunk at a time, and the seconds until all have their results."""

    def __init__(self, recognizer: Recognizer, threads: int, streams: int) -> None:
        # Only chunks are timed; ended segments have their own time.
        import numpy as np

        from asrkit import audio
        from asrkit.runtime import Batcher

        recognizer = recognizer.with_decoding(recognizer.decoding._replace(second=None))
        self.recognizer, self.threads = recognizer, threads
        self.batcher = Batcher(recognizer, streams)
        self.sessions = [self.batcher.start() for _ in range(streams)]
        self.chunk_samples = audio.HOP * recognizer.engine.spec.chunk_frames
        self.draw = np.random.default_rng(0)
        frontend = recognizer.engine.frontend
        ahead = audio.HOP * recognizer.engine.spec.ahead_frames
        first = frontend.frame_size - audio.HOP - frontend.before + ahead
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


def rows_table(rows: list[Row]) -> str:
    from asrkit.evaluation.tables import table

    titles = ("threads", "streams", "load s", "p50 ms", "p95 ms", "p99 ms", "RTF", "streams/core")
    cells = [
        [
            row.backend, str(row.threads), str(row.streams), f"{row.load_s:.2f}",
            f"{row.p50_ms:.1f}", f"{row.p95_ms:.1f}", f"{row.p99_ms:.1f}",
            f"{row.real_time_factor:.4f}", f"{row.streams_a_core:.0f}",
        ]
        for row in rows
    ]  # fmt: skip
    return table(("backend", *titles), cells)
