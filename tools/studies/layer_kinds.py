"""Norms and activations in the layers: what a training step costs with each, and how it learns.

    python -m tools.studies.layer_kinds costs --dim 96 --layers 4 --ffn-dim 384
    python -m tools.studies.layer_kinds train --norm bias --output exp/bias --config an4

asrkit itself has LayerNorm and SiLU (Gulati et al. 2020). `train` takes asrkit train's arguments
too, and its log has the rates of dev. Its model files do not name their norm and activation,
so it removes them. The other kinds:

- norms: "rms" divides by the root mean square (Zhang and Sennrich 2019); "bias" is BiasNorm, which
  subtracts a learnt bias before that (Yao et al. 2023, Zipformer, 3.3); "last" has a LayerNorm at
  the end of each layer and no other; "none" has none, which bounds what a norm can save;
- activations: "relu"; "relu2", its square (So et al. 2021, Primer); "swoosh", SwooshL after the
  feed-forward module's first layer and SwooshR in the convolution (Zipformer, 3.4).
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit import train
from asrkit.model import FULL, ConformerEncoder, Context, CTCHead, Network, layer
from asrkit.training.loss import Loss, View
from tools.studies.jobs import positive

VOCABULARY, LABELS, ROWS, FRAMES = 128, 40, 4, 800


class RMSNorm(nn.RMSNorm):
    """nn.RMSNorm in float32, as autocast computes LayerNorm."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float())


class BiasNorm(nn.Module):
    """x / RMS(x - b) · exp(γ): (…, D) -> (…, D)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim))
        self.log_scale = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        mean_square = (x - self.bias).square().mean(-1, keepdim=True)
        return x * ((mean_square + 1e-5).rsqrt() * self.log_scale.exp())


def swoosh(x: Tensor, shift: float, offset: float) -> Tensor:
    """log(1 + exp(x - shift)) - 0.08·x - offset."""
    return functional.softplus(x - shift) - 0.08 * x - offset


def relu2(x: Tensor) -> Tensor:
    return functional.relu(x).square()


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layer_norm": nn.LayerNorm,
    "rms": partial(RMSNorm, eps=1e-5),
    "bias": BiasNorm,
    "last": lambda dim: nn.Identity(),
    "none": lambda dim: nn.Identity(),
}
Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, tuple[Activation, Activation]] = {  # of feed-forward and of convolution
    "silu": (functional.silu, functional.silu),
    "relu": (functional.relu, functional.relu),
    "relu2": (relu2, relu2),
    "swoosh": (
        partial(swoosh, shift=4.0, offset=0.035),
        partial(swoosh, shift=1.0, offset=0.313261687),
    ),
}


def replace_norms(encoder: ConformerEncoder, norm: str) -> None:
    """Replace the LayerNorms of all layers."""
    for each in encoder.layers:
        for name, module in list(each.named_modules()):
            if not isinstance(module, nn.LayerNorm) or (norm == "last" and name == "norm"):
                continue
            owner, _, attribute = name.rpartition(".")
            setattr(each.get_submodule(owner), attribute, NORMS[norm](encoder.dim))


def replace_activations(activation: str) -> None:
    """Replace SiLU in all layers of this process."""
    feed_forward, convolution = ACTIVATIONS[activation]
    own = vars(functional)
    layer.functional = SimpleNamespace(**own | {"silu": convolution})  # type: ignore[assignment]

    def forward(module: layer.FeedForward, x: Tensor) -> Tensor:
        hidden = module.dropout(feed_forward(module.expand(module.norm(x))))
        return module.dropout(module.project(hidden))

    layer.FeedForward.forward = forward  # type: ignore[method-assign,assignment]


def train_with(norm: str, activation: str, output: Path, arguments: list[str]) -> int:
    """Train as asrkit train does; the encoders that it builds have the norm and the activation."""
    built = ConformerEncoder.__init__

    def build(encoder: ConformerEncoder, *args: Any, **settings: Any) -> None:
        built(encoder, *args, **settings)
        replace_norms(encoder, norm)

    ConformerEncoder.__init__ = build  # type: ignore[method-assign,assignment]
    replace_activations(activation)
    status = train.main([*arguments, f"training.output_dir={output}"])
    for path in output.rglob("*.safetensors"):
        path.unlink()
    return status


def costs(options: argparse.Namespace) -> None:
    """Print the CPU time of a training step with each kind, one thread, in turns."""
    torch.set_num_threads(1)
    kinds = [(norm, "silu") for norm in NORMS]
    kinds += [("layer_norm", activation) for activation in ACTIVATIONS if activation != "silu"]
    kinds += [("none", "relu")]
    steps = {kind: step_of(kind[0], options) for kind in kinds}
    taken: dict[tuple[str, str], list[float]] = {kind: [] for kind in kinds}
    for _ in range(options.rounds + 1):
        for kind, step in steps.items():
            replace_activations(kind[1])
            began = time.thread_time()
            step()
            taken[kind].append(time.thread_time() - began)
    base = taken[kinds[0]][1:]  # the first round warms up
    print("norm, activation: ms a step (lowest to highest), median ratio to the first of its round")
    for (norm, activation), times in taken.items():
        own = [1000 * seconds for seconds in times[1:]]
        ratio = statistics.median(a / b for a, b in zip(times[1:], base, strict=True))
        print(
            f"{norm}, {activation}: {statistics.median(own):.0f} ({min(own):.0f} to {max(own):.0f})"
            f", {ratio:.3f}"
        )


def step_of(norm: str, options: argparse.Namespace) -> Callable[[], None]:
    """Return a step of ROWS recordings of 8 s, in full context and in chunks."""
    torch.manual_seed(0)
    encoder = ConformerEncoder(80, options.dim, 4, options.layers, options.ffn_dim, dropout=0.1)
    replace_norms(encoder, norm)
    model = Network(encoder, CTCHead(encoder.dim, VOCABULARY)).train()
    loss = Loss(model, [], 0.0)
    draw = torch.Generator().manual_seed(0)
    feats = torch.randn(ROWS, FRAMES, 80, generator=draw)
    tokens = torch.randint(1, VOCABULARY, (ROWS, LABELS), generator=draw)
    lengths, counts = torch.full((ROWS,), FRAMES), torch.full((ROWS,), LABELS)
    views = [View(feats, FULL), View(feats, Context(16, 64))]

    def step() -> None:
        loss(views, lengths, tokens, counts, 0.1).mean().backward()
        model.zero_grad()

    return step


def main(argv: list[str] | None = None) -> int:
    arguments = argparse.ArgumentParser(
        "layer_kinds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = arguments.add_subparsers(dest="part", required=True)
    times = parts.add_parser("costs", help="CPU time of a training step")
    for name, value in (("dim", 96), ("layers", 4), ("ffn-dim", 384)):
        times.add_argument(
            f"--{name}", type=positive, default=value, help=f"size of the network (default {value})"
        )
    times.add_argument("--rounds", type=positive, default=15, help="measurements (default 15)")
    training = parts.add_parser("train", help="train, with asrkit train's arguments")
    training.add_argument("--output", type=Path, required=True, help="folder of the training")
    training.add_argument("--norm", choices=NORMS, default="layer_norm")
    training.add_argument("--activation", choices=ACTIVATIONS, default="silu")
    options, others = arguments.parse_known_args(argv)
    if options.part == "train":
        if options.output.exists():  # the models in it would be removed
            arguments.error(f"--output {options.output} exists already: name a new folder")
        return train_with(options.norm, options.activation, options.output, others)
    if others:
        arguments.error(f"unknown arguments: {' '.join(others)}")
    costs(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
