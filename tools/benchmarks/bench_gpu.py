"""Measure what a GPU carries: live streams, whole recordings, and training steps.

The reference network of the benchmarks with random weights, from samples to the best labels of
each frame, and a training step of it. Live: all streams step together, one chunk each, with
features on the card, and copies from and to pinned memory. `graph` is the step captured as a CUDA
graph, `compiled` this graph of the step that torch.compile made; in training steps `compiled` is
each layer by torch.compile. An audio second a second is a stream that keeps up.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from benchmarks import (
    CHUNK_SIZE,
    LEFT_CONTEXT,
    Failure,
    Row,
    attempt,
    environment,
    parser,
    reference_layers,
    report,
)
from torch import Tensor

from asrkit.audio import HOP, SAMPLE_RATE, Fbank
from asrkit.backends.pytorch import known_device
from asrkit.model import (
    FULL,
    ConformerEncoder,
    Context,
    CTCHead,
    Network,
    Step,
)
from asrkit.model.frontend import TorchFrontend
from asrkit.training.loss import Loss, View

CONTEXT = Context(CHUNK_SIZE, LEFT_CONTEXT)
VOCABULARY, LABELS = 500, 40
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def network(large: bool, options: argparse.Namespace, kernels: bool = False) -> Network:
    """The reference network, or one of the size of a 0.6 B import."""
    torch.manual_seed(0)
    layers = reference_layers(options)
    with torch.device(options.device):
        if large:
            encoder = ConformerEncoder(80, 1024, 8, 2 * layers, 4096, 9, subsampling="conv8")
        else:
            encoder = ConformerEncoder(80, 256, 4, layers, 2048, 15, kernels=kernels)
        return Network(encoder, CTCHead(encoder.dim, VOCABULARY)).eval()


class Live:
    """The next chunk of each stream: int16 samples in pinned memory -> labels in pinned memory."""

    def __init__(self, model: Network, streams: int, device: str, dtype: torch.dtype) -> None:
        self.model = model.to(device, dtype)
        rate = model.encoder.rate
        chunk = rate.factor * (CHUNK_SIZE if rate.factor == 4 else CHUNK_SIZE // 2)
        context = CONTEXT if rate.factor == 4 else Context(CHUNK_SIZE // 2, LEFT_CONTEXT // 2)
        self.step = Step(self.model.encoder, self.model.head, context)
        frontend = TorchFrontend(Fbank(model.encoder.num_mels, rate.lead_frames))
        self.frontend = frontend.to(device).of_tensors()
        pinned = device != "cpu"
        self.samples = torch.randint(-3000, 3000, (streams, chunk * HOP), dtype=torch.int16)
        if pinned:
            self.samples = self.samples.pin_memory()
        self.on_card = self.samples.to(device)
        self.state = self.step.init_state(streams)
        # in the middle of a stream: as many samples in as feature frames out
        self.past = 0.1 * torch.randn(streams, self.frontend.frame_size - HOP, device=device)
        self.frames = chunk + rate.lookahead
        self.ahead = torch.zeros(streams, rate.lookahead, model.encoder.num_mels, device=device)
        self.lengths = torch.full((streams,), self.frames, device=device)
        self.dtype = dtype
        self.labels = self.compute()
        self.out = torch.empty(self.labels.shape, dtype=torch.int64, pin_memory=pinned)

    def compute(self) -> Tensor:
        """Features, network and the best labels; the state is written in place."""
        audio = self.on_card.float() / 32768
        feats, past = self.frontend(audio, self.past)
        feats = torch.cat([self.ahead, feats], dim=1)[:, : self.frames].to(self.dtype)
        frames, _, state = self.step(feats, self.lengths, self.state)
        self.past.copy_(past)
        for old, new in zip(self.state, state, strict=True):
            old.copy_(new)
        return frames.argmax(2)

    def captured(self) -> Callable[[], Tensor]:
        """The same as a CUDA graph."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.compute()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            labels = self.compute()

        def replay() -> Tensor:
            graph.replay()
            return labels

        return replay

    def run(self, compute: Callable[[], Tensor]) -> None:
        self.on_card.copy_(self.samples, non_blocking=True)
        self.out.copy_(compute(), non_blocking=True)


def seconds_of(run: Callable[[], object], device: str, rounds: int) -> float:
    """Median of a run's seconds, after two that warm up."""
    taken = []
    for _ in range(rounds + 2):
        wait(device)
        started = time.perf_counter()
        run()
        wait(device)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[2:])


def wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


@torch.inference_mode()
def live(
    streams: int, dtype: str, how: str, large: bool, options: argparse.Namespace
) -> tuple[float, float]:
    """Seconds of a step of all streams, and the seconds of audio in it."""
    model = network(large, options)
    work = Live(model, streams, options.device, DTYPES[dtype])
    if how == "compiled":
        work.step.forward = torch.compile(work.step.forward, dynamic=False)  # type: ignore[method-assign]
        work.compute()  # compiles, which a graph cannot capture
    compute = work.compute if how == "eager" else work.captured()
    seconds = seconds_of(lambda: work.run(compute), options.device, options.rounds)
    return seconds, streams * work.samples.size(1) / SAMPLE_RATE


@torch.inference_mode()
def offline(
    rows: int, dtype: str, how: str, large: bool, options: argparse.Namespace
) -> tuple[float, float]:
    """Seconds of a batch of recordings of 20 s, and their seconds."""
    model = network(large, options, "kernels" in how)
    model = model.to(options.device, DTYPES[dtype])
    full = "full" in how
    step = Step(model.encoder, model.head, FULL if full else CONTEXT)
    frontend = Fbank(model.encoder.num_mels, model.encoder.rate.lead_frames)
    frontend = TorchFrontend(frontend).to(options.device).of_tensors()
    length = options.seconds * SAMPLE_RATE
    samples = torch.randint(-3000, 3000, (rows, length), dtype=torch.int16)
    if options.device != "cpu":
        samples = samples.pin_memory()
    frames = length // HOP // 64 * 64 + model.encoder.rate.lookahead
    lengths = torch.full((rows,), frames, device=options.device)

    def run() -> Tensor:
        audio = samples.to(options.device, non_blocking=True).float() / 32768
        feats, _ = frontend(audio, frontend.start(rows))
        feats = torch.nn.functional.pad(feats, (0, 0, 0, 64))[:, :frames].to(DTYPES[dtype])
        return step(feats, lengths, step.init_state(rows)).frames.argmax(2).cpu()

    return seconds_of(run, options.device, options.rounds), rows * length / SAMPLE_RATE


@torch.inference_mode(False)
@torch.enable_grad()
def training(
    rows: int, dtype: str, how: str, large: bool, options: argparse.Namespace
) -> tuple[float, float]:
    """Seconds of a step on recordings of 15 s, and their seconds; in full context or chunks."""
    model = network(large, options, "kernels" in how).train()
    if "compiled" in how:
        for layer in model.encoder.layers:
            layer.compile(dynamic=True)  # as for batches of many lengths
    context = FULL if "full" in how else CONTEXT
    draw, frames = torch.Generator().manual_seed(0), 1500
    feats = torch.randn(rows, frames, 80, generator=draw).to(options.device)
    tokens = torch.randint(1, VOCABULARY, (rows, LABELS), generator=draw).to(options.device)
    lengths, counts = torch.full((rows,), frames), torch.full((rows,), LABELS)  # on the CPU
    loss = Loss(model, [], 0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    kind = "cpu" if options.device == "cpu" else "cuda"

    def run() -> None:
        with torch.autocast(kind, torch.bfloat16, enabled=dtype == "bfloat16"):
            value = loss([View(feats, context)], lengths, tokens, counts, 0.1).mean()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()

    return seconds_of(run, options.device, options.rounds), rows * frames / 100


PARTS = {"live": live, "offline": offline, "training": training}


def cells(options: argparse.Namespace) -> Iterator[tuple[str, str, int, str, bool]]:
    """Part, how, rows, precision, and whether the large network."""
    on_card, rows = options.device != "cpu", 2 if options.quick else 64
    for streams in [2] if options.quick else [1, 64, 512, 4096]:
        for dtype in DTYPES:
            for how in ("eager", "graph") if on_card else ("eager",):
                yield "live", how, streams, dtype, False
        if options.compile and on_card:
            yield "live", "compiled", streams, "bfloat16", False
    if on_card and not options.quick:
        for streams in (1, 64, 512, 1024):
            yield "live", "graph", streams, "bfloat16", True
        yield "offline", "full", rows, "bfloat16", True
    for dtype in DTYPES:
        for context in ("full", "chunks"):
            kernels = ("", ", kernels") if on_card and dtype == "bfloat16" else ("",)
            for with_kernels in kernels:
                yield "offline", context + with_kernels, rows, dtype, False
                yield "training", context + with_kernels, rows // 2, dtype, False
            if options.compile:
                yield "training", context + ", compiled", rows // 2, dtype, False


def main() -> None:
    arguments = parser(
        "What a GPU carries.", "python tools/benchmarks/bench_gpu.py --parts live offline"
    )
    arguments.add_argument("--device", default="cuda", help="device of torch (default cuda)")
    arguments.add_argument("--parts", nargs="+", default=[*PARTS], choices=PARTS)
    arguments.add_argument(
        "--seconds", type=int, default=20, help="length of a recording (default 20)"
    )
    arguments.add_argument(
        "--compile",
        action="store_true",
        help="also compile live steps and the layers of training steps, half a minute each",
    )
    options = arguments.parse_args()
    if options.quick:
        options.seconds = 4
    facts = environment(options)
    known_device(options.device)  # as `load` and training do: it makes convolutions exact
    if options.device != "cpu":
        facts["GPU"] = torch.cuda.get_device_name()
    rows: list[Row] = []
    for part, how, count, dtype, large in cells(options):
        if part not in options.parts:
            continue
        run = partial(PARTS[part], count, dtype, how, large, options)
        result = attempt(run, options.limit)
        row: Row = {"part": part, "network": "0.6 B" if large else "reference", "how": how}
        row |= {"rows": count, "precision": dtype}
        if isinstance(result, Failure):
            row |= {"ms": result.reason, "audio s / s": None}
        else:
            row |= {"ms": 1000 * result[0], "audio s / s": round(result[1] / result[0])}
        rows.append(row)
        print(*row.values(), flush=True)
    report("A GPU: live streams, recordings, training", facts, rows, options.json)


if __name__ == "__main__":
    main()
