"""Time and memory of an encoder over a whole recording, beside its peers.

From log mels, batch 1, random weights, float32 but for files of int8. torchaudio's Conformer
attends to the whole recording, without positions.
"""

import argparse
import multiprocessing
import resource
import statistics
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from benchmarks import (
    CHUNK_FEATS,
    CHUNK_SIZE,
    LEFT_CONTEXT,
    QUICK_SECONDS,
    Failure,
    Row,
    TensorStep,
    attempt,
    chosen,
    compared,
    environment,
    parser,
    random_feats,
    reference_encoder,
    reference_layers,
    report,
    round_robin,
    timed,
)
from peers import ConformerForward, SpeechBrainForward
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from asrkit.backends import onnx
from asrkit.model import FULL_CONTEXT, Context, Step

LONG = 300.0  # seconds of audio from which on one round has to do
PIECE = 47 * CHUNK_FEATS  # feature frames of 47 chunks, half a minute
LOADING = 120.0  # seconds that a process may take before its pass begins

Forward = Callable[[Tensor], object]  # (1, T, F) log mels -> encoder frames


def chunked(num_layers: int) -> Forward:
    step = Step(reference_encoder(num_layers), None, Context(CHUNK_SIZE, LEFT_CONTEXT)).eval()
    return lambda feats: step(feats, torch.tensor([feats.size(1)]), step.init_state(1))


def in_pieces(step: Any, feats: Tensor) -> object:
    """Run like a recogniser on long recordings: half a minute a step, with the state kept."""
    state, encoded = step.init_state(1), []
    for piece in feats.split(PIECE, dim=1):
        lengths = torch.tensor([piece.size(1)])
        piece = functional.pad(piece, (0, 0, 0, -piece.size(1) % CHUNK_FEATS))
        frames, _, state = step(piece, lengths, state)
        encoded.append(frames)
    return torch.cat(encoded, dim=1)


def eager_in_pieces(num_layers: int) -> Forward:
    step = Step(reference_encoder(num_layers), None, Context(CHUNK_SIZE, LEFT_CONTEXT)).eval()
    return partial(in_pieces, step)


def exported_in_pieces(path: Path, _num_layers: int) -> Forward:
    """A file of `asrkit export`, on as many threads as torch has at each call."""

    @cache
    def step(threads: int) -> Any:
        return TensorStep(onnx.read(path, threads)[0])

    step(torch.get_num_threads())
    return lambda feats: in_pieces(step(torch.get_num_threads()), feats)


def full_context(num_layers: int) -> Forward:
    encoder = reference_encoder(num_layers)
    return lambda feats: encoder(
        feats, torch.tensor([feats.size(1)]), encoder.init_state(1, 0), FULL_CONTEXT
    )


CHUNKED = "asrkit, chunks of 640 ms"  # what the others are compared with
BUILDERS: dict[str, Callable[[int], Forward]] = {
    CHUNKED: chunked,
    "asrkit, 30 s a step": eager_in_pieces,
    "asrkit, full context": full_context,
    "torchaudio Conformer": lambda layers: ConformerForward(layers).eval(),
}
if find_spec("speechbrain"):
    BUILDERS["speechbrain Conformer, full context"] = lambda n: SpeechBrainForward(n).eval()


def peak_megabytes() -> float:
    """The most memory that this process ever held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def builders(options: argparse.Namespace) -> dict[str, Callable[[int], Forward]]:
    exports = {
        f"asrkit, {path.name}, 30 s a step": partial(exported_in_pieces, path)
        for path in options.onnx
    }
    return BUILDERS | exports


def measure_memory(name: str, seconds: float, options: argparse.Namespace) -> float | Failure:
    """Return the megabytes of one pass above the loaded model, or what prevents it."""
    torch.set_num_threads(max(options.threads))
    forward = builders(options)[name](reference_layers(options))
    feats = random_feats(seconds)
    loaded = peak_megabytes()
    result = attempt(lambda: forward(feats), options.limit)
    return result if isinstance(result, Failure) else peak_megabytes() - loaded


def memory(name: str, seconds: float, options: argparse.Namespace) -> float | Failure:
    """`measure_memory` in a process of its own: a peak never goes down again."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        measured = pool.apply_async(measure_memory, (name, seconds, options))
        try:
            return measured.get(options.limit + LOADING)
        except multiprocessing.TimeoutError:  # or killed
            return Failure(f"over {options.limit:g} s")


def measure_times(
    forwards: dict[str, Forward], seconds: float, threads: int, options: argparse.Namespace
) -> dict[str, list[list[float]] | Failure]:
    """Seconds of each round."""
    torch.set_num_threads(threads)
    feats = random_feats(seconds)
    passes = {name: partial(timed, partial(forward, feats)) for name, forward in forwards.items()}
    short, label = seconds < LONG, f"{seconds:g} s, threads {threads}"
    return round_robin(passes, options.rounds if short else 1, short, options.limit, label)


def rows_of(
    seconds: float, threads: int, peaks: dict[str, float | Failure], forwards: dict[str, Forward],
    options: argparse.Namespace,
) -> list[Row]:  # fmt: skip
    """A row of the table for each contender."""
    # Not again, and with fewer threads, what failed in a process of its own.
    able = {name: run for name, run in forwards.items() if not isinstance(peaks[name], Failure)}
    failed = {name: peak for name, peak in peaks.items() if isinstance(peak, Failure)}
    results = measure_times(able, seconds, threads, options) | failed
    rows = compared(
        {name: results[name] for name in peaks}, CHUNKED,
        lambda taken: {"seconds": (middle := statistics.median(taken)), "RTF": middle / seconds},
        **{"audio, s": seconds, "threads": threads},
    )  # fmt: skip
    for row, peak in zip(rows, peaks.values(), strict=True):
        row["peak memory, MB"] = peak.reason if isinstance(peak, Failure) else peak
    return rows


def main() -> None:
    arguments = parser(
        "Time and memory of a pass over a whole recording, beside torchaudio's Conformer.",
        "python tools/benchmarks/bench_offline.py --seconds 10 60 --json exp/offline.json",
    )
    arguments.add_argument(
        "--seconds", type=float, nargs="+", default=[10.0, 60.0, 600.0],
        help=f"lengths of audio (default 10 60 600); one round from {LONG:g} s on",
    )  # fmt: skip
    arguments.add_argument(
        "--max-memory", type=float, default=18.0, help="GB that a process may use (default 18)"
    )
    arguments.add_argument(
        "--onnx", type=Path, nargs="+", metavar="FILE", default=[],
        help="exports of the reference model to measure too, half a minute a step",
    )  # fmt: skip
    options = arguments.parse_args()
    # An allocation is to fail in Python before the kernel kills this process, or another one; the
    # processes that measure memory inherit the limit.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (round(options.max_memory * 1e9), hard))
    for path in options.onnx:
        if not path.is_file():
            arguments.error(f"--onnx {path}: no such file")
    facts = environment(options)
    lengths = [QUICK_SECONDS] if options.quick else options.seconds
    if min(lengths) < 1.0:
        arguments.error(f"--seconds must be at least 1, got {min(lengths):g}")
    # Before anything is built here: on Linux a child's peak starts at its parent's.
    names = chosen(builders(options), options)
    cells = [(seconds, name) for seconds in lengths for name in names]
    peaks: dict[float, dict[str, float | Failure]] = {seconds: {} for seconds in lengths}
    for seconds, name in tqdm(cells, desc="memory"):
        peaks[seconds][name] = memory(name, seconds, options)
    forwards = {name: builders(options)[name](reference_layers(options)) for name in names}
    rows: list[Row] = []
    for seconds in lengths:
        for threads in options.threads:
            rows += rows_of(seconds, threads, peaks[seconds], forwards, options)
    report("Offline: a whole recording at once", facts, rows, options.json)


if __name__ == "__main__":
    main()
