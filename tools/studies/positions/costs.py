"""Costs of each kind, with random weights: python -m tools.studies.positions.costs

All kinds take turns in one process of one thread, so that other work on the machine affects all of
them equally. Each kind's memory is measured in a separate process, because a peak never falls.
"""

import argparse
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from asrkit.build import build_model
from asrkit.cli.parser import Parser
from asrkit.cli.table import markdown
from asrkit.config import load_config
from asrkit.model import FULL_CONTEXT, ConformerEncoder, Context, Step
from asrkit.model.positions import KINDS

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from bench_offline import peak_megabytes
from bench_stream import stream
from benchmarks import (
    CHUNK_FEATS,
    CHUNK_SIZE,
    LEFT_CONTEXT,
    Failure,
    environment,
    random_feats,
    round_robin,
)

ROUNDS, STREAM_SECONDS, MEMORY_SECONDS, LIMIT = 5, 30.0, 60.0, 120.0
# By default glibc keeps a varying amount of freed memory; with this setting it returns all large
# blocks, and the same pass has the same peak to a tenth of a megabyte.
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
CONFIG = "conf/positions.yaml"
BASELINE = "none"  # whose parameters are not the encoding's


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "tools.studies.positions.costs", __doc__,
        "python -m tools.studies.positions.costs --kinds none rotary",
    )  # fmt: skip
    arguments.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    arguments.add_argument("--memory-of", choices=KINDS, help="only print the memory of this kind")
    arguments.add_argument("overrides", nargs="*", metavar="section.key=value")
    return arguments.run(costs, argv)


def costs(options: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    if options.memory_of:
        print(json.dumps(peak_of_pass(options.memory_of, options.overrides)))
        return 0
    # Before anything is built here: on Linux a child's peak starts at its parent's.
    memory = {kind: memory_of(kind, options.overrides) for kind in tqdm(options.kinds, "memory")}
    context = Context(CHUNK_SIZE, LEFT_CONTEXT)
    steps = {
        kind: Step(encoder_of(kind, options.overrides), None, context).eval()
        for kind in options.kinds
    }
    times = step_times(steps)
    baseline = num_parameters(encoder_of(BASELINE, options.overrides))
    rows = []
    for kind, step in steps.items():
        mega = "–" if memory[kind] is None else f"{memory[kind]:.0f}"
        own = num_parameters(step.encoder) - baseline
        rows.append([kind, f"{own:,}", times[kind], mega, f"{table_bytes(step) / 1000:.1f}"])
    print("".join(f"- {name}: {fact}\n" for name, fact in facts_of_machine().items()))
    titles = ["kind", "parameters of the position", "ms a chunk", "memory, MB", "tables, kB"]
    print(markdown(titles, rows))
    return 0


def facts_of_machine() -> dict[str, str]:
    facts = environment(argparse.Namespace(threads=[1]))
    return {name: facts[name] for name in ("date", "CPU", "versions", "commit")}


def encoder_of(kind: str, overrides: list[str]) -> ConformerEncoder:
    """The study's encoder with random weights: time and memory do not depend on them."""
    torch.manual_seed(0)
    config = load_config(CONFIG, [*overrides, f"model.position.kind={kind}"])
    return build_model(config.model, vocab_size=2).encoder.eval()


def num_parameters(encoder: ConformerEncoder) -> int:
    return sum(parameter.numel() for parameter in encoder.parameters())


def table_bytes(step: Step) -> int:
    """Bytes of the position tables for a chunk and left context, which inference keeps."""
    own = [b for name, b in step.named_buffers() if not name.startswith("encoder.")]
    return sum(b.nbytes for b in own)


def peak_of_pass(kind: str, overrides: list[str]) -> float:
    """Megabytes of a pass in full context, above what the process held before it."""
    encoder, feats = encoder_of(kind, overrides), random_feats(MEMORY_SECONDS)
    before = peak_megabytes()
    with torch.inference_mode():
        encoder(feats, torch.tensor([feats.size(1)]), encoder.init_state(1, 0), FULL_CONTEXT)
    return peak_megabytes() - before


def memory_of(kind: str, overrides: list[str]) -> float | None:
    """`peak_of_pass` in a process of its own; None if it fails."""
    command = [
        sys.executable,
        "-m",
        "tools.studies.positions.costs",
        "--memory-of",
        kind,
        *overrides,
    ]
    environment = os.environ | GIVE_BACK
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    return None if done.returncode else float(json.loads(done.stdout))


def step_times(steps: dict[str, Step]) -> dict[str, str]:
    """Median and the middle 90 % of the milliseconds of a chunk, by kind; "–" if it failed."""
    feats = random_feats(STREAM_SECONDS)
    chunks = [c for c in feats.split(CHUNK_FEATS, 1) if c.size(1) == CHUNK_FEATS]
    passes = {kind: partial(stream, step, chunks) for kind, step in steps.items()}
    times = {}
    for kind, rounds in round_robin(passes, ROUNDS, True, LIMIT, "time of a chunk").items():
        if isinstance(rounds, Failure):
            times[kind] = "–"
            continue
        seconds = [1000 * each for steps_of_round in rounds for each in steps_of_round]
        low, median, high = np.percentile(seconds, [5, 50, 95])
        times[kind] = f"{median:.2f} ({low:.2f}–{high:.2f})"
    return times


if __name__ == "__main__":
    sys.exit(main())
