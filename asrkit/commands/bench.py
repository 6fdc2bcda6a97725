"""The work of `asrkit bench`: a model's speed on each backend."""

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from asrkit import audio
from asrkit.atomic_write import replacing
from asrkit.backends import BACKENDS
from asrkit.cli.recognizer import context_of, second_pass_of
from asrkit.errors import UserError
from asrkit.evaluation.tables import table
from asrkit.model.subsampling import split_steps
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime import Batcher, Recognizer, recognizer_of
from asrkit.runtime.threads import leave_cores

WARM_UP = 3  # chunks, or segments
SEGMENT_S, SECOND_TURNS = 5, 15
WINDOW_MS, HOP_MS = audio.WINDOW // 16, audio.HOP // 16


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
    plain = recognizer(options, file, "eager")
    spec = plain.engine.spec
    chunk, left, right = (frames * spec.rate.frame_ms for frames in spec.context)
    soonest = right + WINDOW_MS - HOP_MS
    after = f" and {right} ms after them" if right else ""
    state = sum(each.numel() * each.element_size() for each in plain.engine.init_state(1))
    return {
        "model": f"{options.model}, {file.num_parameters / 1e6:.2f} M parameters",
        "chunks": f"{chunk} ms with {left} ms before them{after}",
        "latency": f"{soonest} to {chunk + soonest} ms, and the time of a step: a window of "
        f"{WINDOW_MS} ms every {HOP_MS} ms, {spec.rate.factor} in a frame, "
        f"{spec.context.chunk_size} frames in a chunk",
        "state": f"{state / 1e6:.2f} MB a stream",
        "batchers": f"{options.batchers}, a thread each, which share the streams",
    }


def recognizer(options: argparse.Namespace, file: ModelFile, backend: str) -> Recognizer:
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
        return 0.1 * self.draw.standard_normal(count, dtype=np.float32)

    def go(self, chunks: int) -> None:
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
