"""The gradients of a training step: losses of batches, with random augmentation and contexts."""

import functools
import random
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from asrkit.audio import features
from asrkit.build import build_frontend, build_spec_augment
from asrkit.config import Config
from asrkit.data.dataset import Batch, seed_everything
from asrkit.model import Network
from asrkit.training.distributed import Ranks
from asrkit.training.loaders import filler
from asrkit.training.loss import Loss
from asrkit.training.optimizer import ramp
from asrkit.training.views import draw_views, to_few_lengths

# Parameters from which on bfloat16 is faster on a CPU that has it: 1.9 times as fast with 33 M, no
# faster with 1 M (tools/README.md).
FASTER_ON_A_CPU = 10_000_000


class Gradients:
    """The losses of a model on batches of samples, and their gradients."""

    def __init__(self, model: Network, config: Config, ranks: Ranks) -> None:
        options = config.training
        self.config, self.ranks = config, ranks
        self.frontend = build_frontend(config.model).to(ranks.device)
        self.spec_augment = build_spec_augment(config.augmentation)
        self.cycle = model.encoder.position.cycle
        if options.gradient_checkpointing:
            recompute_layers(model)
        loss = Loss(model, options.intermediate_layers, options.intermediate_weight)
        self.loss = ranks.wrap(loss)
        self.bfloat16 = wants_bfloat16(options.precision, ranks.device, model)

    def backward(
        self, group: list[Batch], tokens: float, share: float
    ) -> list[tuple[list[str], Tensor]]:
        """Compute the gradients of the mean loss over the tokens of all ranks.

        Args:
            tokens: number of tokens in the batches of all ranks.
            share: share of all training that is done, 0 to 1.

        Returns:
            Ids and losses of the utterances, for each of this rank's batches.
        """
        found = []
        for i, batch in enumerate(group):
            last = i + 1 == len(group)
            with nullcontext() if last else self.ranks.no_sync(self.loss):
                losses = self.losses(batch if batch.ids else filler(), share)
                weight = 1.0 if batch.ids else 0.0
                # Gradients are averaged over ranks: `ranks.size` makes that a mean over tokens.
                (losses.sum() * (weight * self.ranks.size / max(1.0, tokens))).backward()
            if batch.ids:
                found.append((batch.ids, losses.detach()))
        return found

    def losses(self, batch: Batch, share: float) -> Tensor:
        """Compute the losses (B,) of a batch; see `backward` for `share`."""
        seed_everything(f"{batch.seed}-model")
        options, device = self.config.training, self.ranks.device
        draw = random.Random(f"{batch.seed}-context")
        # Not the global generator: other threads of the process may draw from it.
        masks = random.Random(f"{batch.seed}-model")
        feats, _ = features(
            self.frontend,
            batch.samples.to(device, non_blocking=True),
            batch.num_samples.to(device, non_blocking=True),
        )
        if self.bfloat16 and device.type == "cpu":
            feats = to_few_lengths(feats)
        lengths = self.frontend.num_frames(batch.num_samples)  # on the CPU, where they are used
        views = draw_views(
            feats, lengths, self.config, self.frontend, self.spec_augment, share, draw, masks,
            self.cycle,
        )  # fmt: skip
        weight = options.consistency_weight * ramp(share, options.consistency_ramp)
        tokens = batch.tokens.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=self.bfloat16):
            return self.loss(views, lengths, tokens, batch.token_lengths, weight)


def not_finite(losses: list[tuple[list[str], Tensor]]) -> list[str]:
    """Return the ids of utterances whose loss is not finite, from ids and losses of batches."""
    return [
        name
        for names, each in losses
        for name, finite in zip(names, torch.isfinite(each).tolist(), strict=True)
        if not finite
    ]


def recompute_layers(model: Network) -> None:
    """Recompute the activations inside each layer in the backward pass, to save memory."""
    for layer in model.encoder.layers:
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)


def wants_bfloat16(precision: str, device: torch.device, model: Network) -> bool:
    """Return whether to compute in bfloat16: where that is faster, if `precision` is auto."""
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    size = sum(parameter.numel() for parameter in model.parameters())
    return size >= FASTER_ON_A_CPU and torch.cpu._is_avx512_bf16_supported()
