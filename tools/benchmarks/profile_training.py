"""Profile the time of a training step, by kind of operation, beside what its products must take.

Random features and labels; forward, CTC, backward, clipping and the optimiser of a configuration,
on one thread. The last row is a bound: the arithmetic of the step's products and convolutions at
the rate of a large product on this machine, with nothing between them.
"""

import argparse
import statistics
import time
from collections import defaultdict
from functools import partial

import torch
from benchmarks import DIM, FFN_DIM, Row, environment, parser, report
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

from asrkit.build import build_model
from asrkit.config import load_config
from asrkit.model import FULL_CONTEXT, Context
from asrkit.training.loss import Loss, View
from asrkit.training.optimizer import build_optimizers

VOCABULARY, LABELS = 30, 20
OPTIMIZER = "clipping and optimiser"
KINDS = {  # of aten's operations, by parts of their names, in this order
    "convolutions": ("convolution",),
    "matrix products": ("mm", "dot"),
    "softmax and masks": ("softmax", "masked"),
    "norms and activations": ("layer_norm", "silu", "glu", "relu", "threshold", "clamp"),
    "dropout's draws": ("random_", "aten::ge"),
    "CTC": ("ctc",),
    "copies, joining, zeros": ("copy_", "cat", "fill_", "unfold", "stack", "zero_", "_backward"),
    "sums, products of elements": ("mul", "add", "sum", "sub", "div"),
}


class Step:
    """A training step of a configuration on one batch."""

    def __init__(self, options: argparse.Namespace, context: Context) -> None:
        config = load_config(options.config, options.override)
        training = config.training
        torch.manual_seed(0)
        self.model = build_model(config.model, VOCABULARY).train()
        self.loss = Loss(self.model, training.intermediate_layers, training.intermediate_weight)
        self.optimizers = build_optimizers(
            self.model, training.optimizer, training.weight_decay, training.rate_factors
        )
        batch, frames = options.batch, round(100 * options.seconds)
        self.view = View(torch.randn(batch, frames, config.model.num_mels), context)
        self.lengths = torch.full((batch,), frames)
        self.tokens = torch.randint(1, VOCABULARY, (batch, LABELS))

    def __call__(self) -> None:
        labels = torch.full((len(self.tokens),), LABELS)
        self.loss([self.view], self.lengths, self.tokens, labels).mean().backward()
        with record_function(OPTIMIZER):
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            for optimizer in self.optimizers:
                optimizer.step()
            self.model.zero_grad(set_to_none=True)


def kind_of(name: str) -> str:
    if name.startswith("aten::"):
        for kind, parts in KINDS.items():
            if any(part in name for part in parts):
                return kind
    return "views, graph, Python"


def by_kind(step: Step, rounds: int) -> dict[str, float]:
    """Seconds of each kind in a step; what no operation takes is in the last."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(rounds):
            step()
    seconds: dict[str, float] = defaultdict(float)
    for event in found.events():
        parent, inside = event, False
        while parent is not None:
            inside |= parent.name == OPTIMIZER
            parent = parent.cpu_parent
        kind = OPTIMIZER if inside else kind_of(event.name)
        seconds[kind] += 1e-6 * event.self_cpu_time_total / rounds
    return seconds


def seconds_of(step: Step, rounds: int) -> float:
    """CPU time, median, without the profiler."""
    taken = []
    for _ in range(rounds):
        started = time.process_time()
        step()
        taken.append(time.process_time() - started)
    return statistics.median(taken)


def bound(step: Step) -> float:
    """Seconds of the arithmetic at the rate of a product of 2000 rows by the reference's matrix."""
    with FlopCounterMode(display=False) as counter:
        step()
    x, weight = torch.randn(2000, DIM), torch.randn(DIM, FFN_DIM)
    rates = []
    for _ in range(30):
        started = time.process_time()
        x @ weight
        rates.append(2.0 * 2000 * DIM * FFN_DIM / (time.process_time() - started))
    return counter.get_total_flops() / max(rates)


def measure(name: str, step: Step, rounds: int) -> list[Row]:
    for _ in range(3):
        step()
    total, kinds = seconds_of(step, rounds), by_kind(step, rounds)
    profiled = sum(kinds.values())
    ordered = sorted(kinds.items(), key=lambda item: -item[1])
    shares = [(kind, seconds / profiled) for kind, seconds in ordered]
    shares += [("everything, without the profiler", 1.0), ("bound", bound(step) / total)]
    return [
        {"context": name, "kind": kind, "ms": 1e3 * total * share, "share, %": 100 * share}
        for kind, share in shares
    ]


def main() -> None:
    arguments = parser(
        "Where the time of a training step goes.",
        "python tools/benchmarks/profile_training.py --config conf/conformer.yaml --batch 8",
    )
    arguments.set_defaults(threads=[1], rounds=10)
    arguments.add_argument("--config", default="conf/conformer.yaml", help="configuration")
    arguments.add_argument("--batch", type=int, default=8, help="utterances (default 8)")
    arguments.add_argument("--seconds", type=float, default=3.0, help="seconds of each (default 3)")
    arguments.add_argument("override", nargs="*", help="section.key=value")
    options = arguments.parse_args()
    facts = environment(options)
    torch.set_num_threads(options.threads[0])
    contexts = {"full": Context(FULL_CONTEXT, 0), "chunks of 640 ms": Context(16, 64)}
    make = partial(Step, options)
    rows = [row for n, c in contexts.items() for row in measure(n, make(c), options.rounds)]
    report(f"A training step of {options.config}", facts, rows, options.json)


if __name__ == "__main__":
    main()
