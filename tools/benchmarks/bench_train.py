"""Measure the utterances a second that an encoder trains on: forward, CTC, backward, AdamW.

Batches of log mels of equal length, random weights and labels, full context, dropout 0.1, beside
torchaudio's Conformer and, where it is installed, speechbrain's.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import torch
from benchmarks import (
    CHANNELS,
    CHUNK_SIZE,
    DIM,
    FFN_DIM,
    KERNEL_SIZE,
    LEFT_CONTEXT,
    NUM_HEADS,
    NUM_MELS,
    Row,
    chosen,
    compared,
    environment,
    parser,
    reference_layers,
    report,
    round_robin,
    timed,
)
from peers import ConformerForward, SpeechBrainForward
from torch import Tensor, nn

from asrkit.model import FULL_CONTEXT, ConformerEncoder

VOCABULARY, LABELS, DROPOUT = 500, 40, 0.1
EAGER = "asrkit, full context"  # what the others are compared with


class Encoder(nn.Module):
    """asrkit's, called with log mels alone as the peers are."""

    def __init__(self, num_layers: int, chunk_size: int, left_context: int) -> None:
        super().__init__()
        self.encoder = ConformerEncoder(
            NUM_MELS, DIM, NUM_HEADS, num_layers, FFN_DIM, KERNEL_SIZE, DROPOUT,
            subsampling={"kind": "conv4", "channels": CHANNELS},
        )  # fmt: skip
        self.chunk_size, self.left_context = chunk_size, left_context

    def forward(self, feats: Tensor) -> Tensor:
        lengths = torch.full((feats.size(0),), feats.size(1))
        state = self.encoder.init_state(feats.size(0), self.left_context)
        return self.encoder(feats, lengths, state, self.chunk_size).frames


class Peer(nn.Module):
    """A peer's forward that returns frames alone, with dropout."""

    def __init__(self, forward: nn.Module) -> None:
        super().__init__()
        self.inner = forward
        for module in forward.modules():
            if isinstance(module, nn.Dropout):
                module.p = DROPOUT
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = DROPOUT

    def forward(self, feats: Tensor) -> Tensor:
        return self.inner(feats)[0]


BUILDERS: dict[str, Callable[[int], nn.Module]] = {
    EAGER: lambda layers: Encoder(layers, FULL_CONTEXT, 0),
    "asrkit, chunks of 640 ms": lambda layers: Encoder(layers, CHUNK_SIZE, LEFT_CONTEXT),
    "torchaudio Conformer": lambda layers: Peer(ConformerForward(layers)),
}
if find_spec("speechbrain"):
    BUILDERS["speechbrain Conformer"] = lambda layers: Peer(SpeechBrainForward(layers))


class Training:
    """A model with its optimiser; each call is a step."""

    def __init__(self, encoder: nn.Module, bfloat16: bool) -> None:
        self.encoder, self.head = encoder.train(), nn.Linear(DIM, VOCABULARY)
        self.parameters = [*encoder.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=True)
        self.bfloat16 = bfloat16

    def step(self, feats: Tensor, labels: Tensor) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
            log_probs = self.head(self.encoder(feats)).log_softmax(2).float()  # (B, E, V)
        frames = torch.full((len(feats),), log_probs.size(1))
        sizes = torch.full((len(feats),), LABELS)
        loss = nn.functional.ctc_loss(log_probs.transpose(0, 1), labels, frames, sizes)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


@torch.inference_mode(False)
@torch.enable_grad()
def one_step(training: Training, feats: Tensor, labels: Tensor) -> None:
    training.step(feats.clone(), labels.clone())


def measure(threads: int, options: argparse.Namespace) -> list[Row]:
    """A row of the table for each contender."""
    torch.set_num_threads(threads)
    batch, seconds = options.batch, options.seconds
    torch.manual_seed(0)
    feats = torch.randn(batch, round(seconds * 25) * 4, NUM_MELS)
    labels = torch.randint(1, VOCABULARY, (batch, LABELS))
    passes = {}
    for name in chosen(BUILDERS, options):
        torch.manual_seed(0)
        training = Training(BUILDERS[name](reference_layers(options)), options.bfloat16)
        passes[name] = partial(timed, partial(one_step, training, feats, labels))
    results = round_robin(passes, options.rounds, True, options.limit, f"threads {threads}")
    return compared(
        results, EAGER,
        lambda taken: {
            "s a step": (middle := statistics.median(taken)), "utterances a second": batch / middle,
        },
        threads=threads,
    )  # fmt: skip


def main() -> None:
    arguments = parser(
        "Training steps beside the peers'.",
        "python tools/benchmarks/bench_train.py --threads 2 --rounds 5",
    )
    arguments.add_argument("--batch", type=int, default=8, help="utterances (default 8)")
    arguments.add_argument("--seconds", type=float, default=10.0, help="seconds (default 10)")
    arguments.add_argument("--bfloat16", action="store_true", help="with autocast")
    options = arguments.parse_args()
    if options.quick:
        options.batch, options.seconds = 2, 2.0
    facts = environment(options)
    rows = [row for threads in options.threads for row in measure(threads, options)]
    title = f"Training: {options.batch} utterances of {options.seconds:g} s"
    report(title, facts, rows, options.json)


if __name__ == "__main__":
    main()
