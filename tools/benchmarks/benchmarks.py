"""Parts that the benchmarks share: the reference encoder, taking turns, and the report."""

import argparse
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torchaudio
from torch import Tensor
from tqdm import tqdm

from asrkit.atomic_write import replacing
from asrkit.backends.onnx import OnnxGraph
from asrkit.build_network import build_model
from asrkit.cli.parser import whole
from asrkit.cli.table import markdown
from asrkit.config.schema import parse_config
from asrkit.context import FEATURE_FRAME_MS
from asrkit.model import ConformerEncoder
from asrkit.model_file import ModelFile
from asrkit.text import CharTokenizer

CHUNK_SIZE, LEFT_CONTEXT = 16, 64  # C, M: encoder frames
FACTOR = 4  # conv4's: of the reference encoder and of its peers
CHUNK_FEATS = FACTOR * CHUNK_SIZE  # feature frames of a chunk
CHUNK_MS, LEFT_MS = FEATURE_FRAME_MS * CHUNK_FEATS, FEATURE_FRAME_MS * FACTOR * LEFT_CONTEXT
NUM_MELS, DIM, NUM_HEADS, FFN_DIM, KERNEL_SIZE = 80, 256, 4, 2048, 15
CHANNELS = 64  # of the subsampling, as in the configurations of this size
QUICK_SECONDS, QUICK_LAYERS = 4.0, 2

positive = whole(1, 1_000_000)  # a type of argument

Result = TypeVar("Result")
Row = dict[str, object]  # column -> str, number, or None where there is none
Pass = Callable[[], list[float]]  # one pass over the audio: the seconds of each of its steps


class Failure(NamedTuple):
    """Raised with the reason why a number is missing."""

    reason: str


def parser(description: str, example: str) -> argparse.ArgumentParser:
    """A parser with the options that the benchmarks share."""
    arguments = argparse.ArgumentParser(
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument(
        "--threads", type=positive, nargs="+", default=[1, 2], help="thread counts (default 1 2)"
    )
    arguments.add_argument("--rounds", type=positive, default=5, help="rounds (default 5)")
    arguments.add_argument(
        "--limit", type=float, default=180.0, help="longest pass, seconds (default 180)"
    )
    arguments.add_argument(
        "--quick", action="store_true", help=f"{QUICK_LAYERS} layers, {QUICK_SECONDS:g} s of audio"
    )
    arguments.add_argument(
        "--without",
        nargs="+",
        metavar="NAME",
        default=[],
        help="leave out contenders whose names contain one of these",
    )
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the table there too")
    return arguments


def reference_layers(options: argparse.Namespace) -> int:
    return QUICK_LAYERS if options.quick else 12


def reference_encoder(num_layers: int) -> ConformerEncoder:
    """The encoder that is measured, with random weights: speed does not depend on them."""
    return reference_file(num_layers).model.encoder


def reference_file(num_layers: int = 12) -> ModelFile:
    """A model file of that encoder, whose head has 500 labels."""
    sizes = {"num_mels": NUM_MELS, "dim": DIM, "num_heads": NUM_HEADS, "num_layers": num_layers,
             "ffn_dim": FFN_DIM, "kernel_size": KERNEL_SIZE, "dropout": 0.0,
             "subsampling": {"kind": "conv4", "channels": CHANNELS}}  # fmt: skip
    config = parse_config(
        {
            "data": {"train": "none", "dev": "none"},
            "model": sizes,
            "context": {"chunk_size": CHUNK_SIZE, "left_context": LEFT_CONTEXT},
            "training": {"output_dir": "none"},
        }
    )
    labels = CharTokenizer([chr(0x4E00 + i) for i in range(499)])
    torch.manual_seed(0)
    model = build_model(config.model, labels.vocab_size).eval()
    return ModelFile(model, labels, config, {"note": "random weights"})


class TensorStep:
    """A step of ONNX Runtime that is called with tensors, as a `Step` is."""

    def __init__(self, step: OnnxGraph) -> None:
        self.step, self.init_state = step, step.init_state

    def __call__(self, feats: Tensor, lengths: Tensor, state: Any) -> tuple[Tensor, Any, Any]:
        frames, lengths, state = self.step(feats.numpy(), lengths.numpy(), state)
        return torch.from_numpy(frames), lengths, state


def random_feats(seconds: float) -> Tensor:
    """(1, T, F), T whole encoder frames."""
    torch.manual_seed(1)
    frames = round(1000 * seconds / (FEATURE_FRAME_MS * FACTOR))
    return torch.randn(1, frames * FACTOR, NUM_MELS)


def chosen(names: Iterable[str], options: argparse.Namespace) -> list[str]:
    """Return those that --without does not leave out."""
    return [name for name in names if not any(part in name for part in options.without)]


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """TimeoutError in the block when it takes longer; between two operations, not within one."""

    def stop(_signal: int, _frame: object) -> None:
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def attempt(run: Callable[[], Result], limit: float) -> Result | Failure:
    """Return what `run` returns, or why it did not: over `limit` seconds, out of memory, …"""
    try:
        with time_limit(limit), torch.inference_mode():
            return run()
    except TimeoutError:
        return Failure(f"over {limit:g} s")
    except (MemoryError, RuntimeError, SystemError) as error:
        # Neither torch nor oneDNN has an error of its own for the memory of a CPU.
        lack = isinstance(error, MemoryError) or "memory" in str(error)
        return Failure("out of memory" if lack else str(error).partition("\n")[0])


def round_robin(
    passes: Mapping[str, Pass], rounds: int, warm_up: bool, limit: float, label: str
) -> dict[str, list[list[float]] | Failure]:
    """Seconds of each step of each round. Contenders take turns: drift hits all of them alike."""
    results: dict[str, list[list[float]] | Failure] = {name: [] for name in passes}
    turns = [name for _ in range(rounds + warm_up) for name in passes]
    for name in tqdm(turns, desc=label):
        result = results[name]
        if isinstance(result, Failure):
            continue
        seconds = attempt(passes[name], limit)
        if isinstance(seconds, Failure):
            results[name] = seconds
        else:
            result.append(seconds)
    return {
        name: result if isinstance(result, Failure) else result[warm_up:]
        for name, result in results.items()
    }


def timed(run: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Seconds of a pass, which is one step."""
    started = clock()
    run()
    return [clock() - started]


def compared(
    results: Mapping[str, list[list[float]] | Failure],
    base: str,
    cells: Callable[[list[float]], Row],
    **first: object,
) -> list[Row]:
    """A row of the table for each contender: `first`, the name, the cells of the seconds of all
    steps, and the ratio to the contender `base`. A failure's reason is in the first cell."""
    rows, last = [], f"× {base}"
    for name, result in results.items():
        if isinstance(result, Failure):
            own = dict.fromkeys(cells([1.0]), None)
            own[next(iter(own))] = result.reason
            factor = None
        else:
            own = cells([seconds for steps in result for seconds in steps])
            factor = ratio(result, results.get(base, Failure("")))
        rows.append({**first, "contender": name, **own, last: factor})
    return rows


def ratio(rounds: list[list[float]], base: list[list[float]] | Failure) -> float | None:
    """Median over the rounds of how many times as long as `base` a step took."""
    if isinstance(base, Failure):
        return None
    medians = zip(map(statistics.median, rounds), map(statistics.median, base), strict=True)
    return statistics.median(own / other for own, other in medians)


def environment(options: argparse.Namespace) -> dict[str, str]:
    """Describe a benchmark's machine, versions and the load before it runs."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "date": time.strftime("%Y-%m-%d %H:%M %z"),
        "CPU": f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores",
        "load at the start": f"{os.getloadavg()[0]:.2f}",
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"torchaudio {torchaudio.__version__}",
        "threads": ", ".join(map(str, options.threads)),
        "commit": commit(),
        "command": shlex.join(
            ["python", os.path.relpath(sys.argv[0], Path(__file__).parents[2]), *sys.argv[1:]]
        ),
    }


def commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    except OSError:  # no git here
        return "unknown"
    return found.stdout.strip() or "unknown"


def report(title: str, facts: dict[str, str], rows: Sequence[Row], file: Path | None) -> None:
    """Print a Markdown section with the facts and the table; write both as JSON if asked."""
    print(f"## {title}\n")
    print("\n".join(f"- {name}: {fact}" for name, fact in facts.items()), end="\n\n")
    columns = list(rows[0])
    print(markdown(columns, [[cell(row.get(column)) for column in columns] for row in rows]))
    if file:
        with replacing(file) as temporary:
            everything = {"title": title, **facts, "rows": rows}
            temporary.write_text(json.dumps(everything, indent=2, ensure_ascii=False), "utf-8")


def cell(value: object) -> str:
    """Three digits are more than such measurements repeat."""
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return "–" if value is None else str(value)
