"""What the subsampling costs: CPU time of a training step and of a chunk, conv4 beside conv8.

The networks of configurations, with random weights and inputs; a chunk lasts as long in both. Times
are those of the process on the CPU, which other programs hardly change.
"""

import argparse
import time
from collections.abc import Callable

import torch
from benchmarks import QUICK_SECONDS, Row, environment, parser, ratio, report, round_robin

from asrkit.backends import eager
from asrkit.build import build_model
from asrkit.config import load_config
from asrkit.model import FULL, Context, Network
from asrkit.training.loss import Loss, View

KINDS = ("conv4", "conv8")
VOCABULARY, LABELS = 100, 10
CHUNK_MS, LEFT_MS, CHUNKS = 640, 2560, 10


def model_of(config: str, kind: str) -> Network:
    """The network of a configuration with another subsampling."""
    settings = load_config(config).model
    options = {"kind": kind, "channels": settings.subsampling.model_dump()["channels"]}
    override = "{" + ", ".join(f"{key}: {value or 'null'}" for key, value in options.items()) + "}"
    torch.manual_seed(0)
    changed = load_config(config, [f"model.subsampling={override}"]).model
    return build_model(changed, VOCABULARY)


def cpu_seconds(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


def training(model: Network, seconds: float) -> Callable[[], list[float]]:
    """A step on a batch: full context and chunks, as conf/an4.yaml trains, and AdamW."""
    loss = Loss(model.train(), [2], 0.3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.manual_seed(1)
    feats = torch.randn(4, round(25 * seconds), model.encoder.num_mels)
    lengths = torch.full((4,), feats.size(1))
    tokens = torch.randint(1, VOCABULARY, (4, LABELS))
    frame_ms = model.encoder.rate.frame_ms
    views = [
        View(feats, FULL),
        View(feats, Context(CHUNK_MS // frame_ms, LEFT_MS // frame_ms)),
    ]

    def step() -> None:
        loss(views, lengths, tokens, torch.full((4,), LABELS), 0.2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    @torch.inference_mode(False)
    def run() -> list[float]:
        with torch.enable_grad():
            return [cpu_seconds(step)]

    return run


def streaming(model: Network) -> Callable[[], list[float]]:
    """Chunks of one stream."""
    frame_ms = model.encoder.rate.frame_ms
    backend = eager(model.eval(), Context(CHUNK_MS // frame_ms, LEFT_MS // frame_ms))
    feats = torch.randn(1, CHUNK_MS // 10 + backend.spec.rate.lookahead, model.encoder.num_mels)
    lengths = torch.tensor([feats.size(1)])

    def run() -> list[float]:
        state, found = backend.init_state(1), []
        for _ in range(CHUNKS):
            started = time.process_time()
            state = backend.step(feats, lengths, state).state
            found.append(time.process_time() - started)
        return found

    return run


def measure(options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    seconds = QUICK_SECONDS if options.quick else options.seconds
    for config in options.configs:
        models = {kind: model_of(config, kind) for kind in KINDS}
        for what, passes in (
            ("step", {k: training(model, seconds) for k, model in models.items()}),
            ("chunk", {k: streaming(model) for k, model in models.items()}),
        ):
            found = round_robin(passes, options.rounds, True, options.limit, f"{config} {what}")
            for kind, rounds in found.items():
                each = sorted(1000 * seconds for part in rounds for seconds in part)
                rows.append(
                    {
                        "configuration": config,
                        "subsampling": kind,
                        "parameters, M": sum(p.numel() for p in models[kind].parameters()) / 1e6,
                        "of": what,
                        "median, ms": each[len(each) // 2],
                        "least to most": f"{each[0]:.0f}–{each[-1]:.0f}",
                        "× conv4": ratio(rounds, found["conv4"]),
                    }
                )
    return rows


def main() -> None:
    arguments = parser(
        "CPU time of a training step and of a chunk with each subsampling.",
        "python tools/bench_subsampling.py --threads 1 --rounds 20",
    )
    arguments.add_argument(
        "--configs", nargs="+", default=["an4", "librispeech"], help="of conf/ (default two)"
    )
    arguments.add_argument(
        "--seconds", type=float, default=8.0, help="audio in a batch (default 8)"
    )
    options = arguments.parse_args()
    torch.set_num_threads(options.threads[0])
    facts = environment(options)
    report(
        f"A step on {options.seconds:g} s of audio; a chunk of {CHUNK_MS} ms",
        facts, measure(options), options.json,
    )  # fmt: skip


if __name__ == "__main__":
    main()
