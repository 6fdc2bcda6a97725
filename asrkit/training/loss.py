"""The loss of a training step and its gradients: random views, their contexts, the head's loss."""

import functools
import random
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from asrkit.audio import features
from asrkit.build import build_frontend
from asrkit.config.context import ContextConfig
from asrkit.config.schema import Config
from asrkit.context import FULL, Context, fitted, num_frames
from asrkit.model import Network
from asrkit.model.frontend import TorchFrontend
from asrkit.model.subsampling import num_valid
from asrkit.training.augment import SpecAugment, change_gain, warp_frequencies
from asrkit.training.batches import filler
from asrkit.training.distributed import Ranks
from asrkit.training.optimizer import ramp
from asrkit.training.utterances import Batch, seed_everything

# Parameters from which on bfloat16 is faster on a CPU that has it (tools/README.md).
FASTER_ON_A_CPU = 10_000_000
CONSISTENCY_RAMP = 0.1  # share of training over which the weight between two views grows from 0


class View(NamedTuple):
    """A version of a batch's utterances, with its own masks and its own context."""

    feats: Tensor  # (B, T, F)
    context: Context
    offset: int = 0  # number of the first frame in a periodic position encoding


class Gradients:
    """The losses of a model on batches of samples, and their gradients."""

    def __init__(self, model: Network, config: Config, ranks: Ranks) -> None:
        options = config.training
        self.config, self.ranks = config, ranks
        self.frontend = TorchFrontend(build_frontend(config.model)).to(ranks.device).of_tensors()
        masks = (getattr(config.augmentation, f"spec_{name}") for name in SpecAugment._fields)
        self.spec_augment = SpecAugment(*masks)
        self.cycle = model.encoder.position.cycle
        if options.gradient_checkpointing:
            recompute_layers(model)
        self.loss = ranks.wrap(
            Loss(model, options.intermediate_layers, options.intermediate_weight)
        )
        self.bfloat16 = wants_bfloat16(options.precision, ranks.device, model)

    def backward(
        self, batches: list[Batch], tokens: float, share: float
    ) -> list[tuple[list[str], Tensor]]:
        """Compute the gradients of the mean loss over the tokens of all ranks.

        Args:
            batches: batches of this rank; those without utterances count nothing.
            tokens: number of tokens in the batches of all ranks.
            share: share of all training that is done, 0 to 1.

        Returns:
            Ids and losses of the utterances, for each of this rank's batches.
        """
        scored = []
        for number, batch in enumerate(batches, 1):
            with nullcontext() if number == len(batches) else self.ranks.no_sync(self.loss):
                losses = self.losses(batch if batch.ids else filler(), share)
                weight = 1.0 if batch.ids else 0.0
                # Gradients are averaged over ranks: `ranks.size` makes that a mean over tokens.
                (losses.sum() * (weight * self.ranks.size / max(1.0, tokens))).backward()
            if batch.ids:
                scored.append((batch.ids, losses.detach()))
        return scored

    def losses(self, batch: Batch, share: float) -> Tensor:
        """Compute the losses (B,) of a batch; see `backward` for `share`."""
        seed_everything(f"{batch.seed}-model")
        options, device = self.config.training, self.ranks.device
        feats, _ = features(
            self.frontend,
            batch.samples.to(device, non_blocking=True),
            batch.num_samples.to(device, non_blocking=True),
        )
        if self.bfloat16 and device.type == "cpu":
            feats = to_few_lengths(feats)
        lengths = self.frontend.num_frames(batch.num_samples)  # on the CPU, where they are used
        views = self.draw_views(feats, lengths, batch.seed, share)
        weight = options.consistency_weight * ramp(share, CONSISTENCY_RAMP)
        tokens = batch.tokens.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=self.bfloat16):
            losses: Tensor = self.loss(views, lengths, tokens, batch.token_lengths, weight)
        return losses

    def draw_views(self, feats: Tensor, lengths: Tensor, seed: str, share: float) -> list[View]:
        """Return one or two views of (B, T, F) features, whose lengths are on the CPU."""
        options = self.config.augmentation
        masked = options.spec_probability * ramp(share, options.spec_ramp)
        draw = random.Random(f"{seed}-context")
        # Not the global generator: other threads of the process may draw from it.
        masks = random.Random(f"{seed}-model")
        views = []
        for context in draw_contexts(self.config.context, self.config.training.views, draw):
            warped = warp_frequencies(feats, options.frequency_warp, self.frontend)
            louder = change_gain(warped, options.gain_db * self.frontend.log_scale)
            offset = draw.randrange(self.cycle) if self.cycle else 0
            views.append(View(self.spec_augment(louder, lengths, masked, masks), context, offset))
        return views


class Loss(nn.Module):
    """The head's loss of each utterance, on the last layer and on some layers before it.

    For two views of the same utterances, the loss also penalises their disagreement in each frame.

    Args:
        intermediate_layers: layers (counted from 1) whose output passes through the same head
            (Lee and Watanabe 2021).
        intermediate_weight: weight of the intermediate layers' mean loss; the last layer has the
            rest.
    """

    def __init__(
        self, model: Network, intermediate_layers: list[int], intermediate_weight: float
    ) -> None:
        super().__init__()
        self.model = model
        self.intermediate_layers = sorted(intermediate_layers)
        self.intermediate_weight = intermediate_weight if intermediate_layers else 0.0

    def forward(
        self,
        views: list[View],
        lengths: Tensor,
        tokens: Tensor,
        token_lengths: Tensor,
        consistency_weight: float = 0.0,
    ) -> Tensor:
        """Compute losses in nats: 1 or 2 views, (B,) feature frames, (B, U), (B,) -> (B,).

        The loss is the mean of the views' losses, plus `consistency_weight` times the disagreement.
        """
        scored = [self.of_view(view, lengths, tokens, token_lengths) for view in views]
        total = torch.stack([losses for losses, _ in scored]).mean(dim=0)
        if len(views) > 1:
            counts = num_valid(lengths, self.model.encoder.rate)
            counts = counts.to(total.device, non_blocking=True)
            (_, first), (_, second) = scored
            if (ctc := self.model.head.layer_head()) is not self.model.head:
                first, second = ctc.emissions(first), ctc.emissions(second)
            total = total + consistency_weight * disagreement(first, second, counts)
        return total

    def of_view(
        self, view: View, lengths: Tensor, tokens: Tensor, token_lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return (B,) losses, and the head's emissions of the last layer."""
        encoder, head = self.model.encoder, self.model.head
        frames = num_frames(view.feats.size(1), encoder.rate)
        chunk_size, left, right = fitted(view.context, frames)
        # The frames after the last chunk are zeros.
        feats = functional.pad(view.feats, (0, 0, 0, right * encoder.rate.factor))
        # A longer left context than the frames before the last chunk would add only invalid keys.
        left = min(left, max(0, frames - 1) // chunk_size * chunk_size)
        state = encoder.init_state(view.feats.size(0), left)
        on_device = lengths.to(feats.device, non_blocking=True)
        context = Context(chunk_size, left, right)
        output, layers = encoder.run(
            feats, on_device, state, context, layers=self.intermediate_layers, offset=view.offset
        )
        lengths = num_valid(lengths, encoder.rate)
        last = head.emissions(output.frames[:, :frames]).float()
        loss = head.loss(last, lengths, tokens, token_lengths)
        total = (1.0 - self.intermediate_weight) * loss
        for encoded in layers:
            share, layer_head = self.intermediate_weight / len(layers), head.layer_head()
            of_layer = layer_head.emissions(encoded[:, :frames]).float()
            total = total + share * layer_head.loss(of_layer, lengths, tokens, token_lengths)
        return total, last


def disagreement(first: Tensor, second: Tensor, lengths: Tensor) -> Tensor:
    """Return the symmetric Kullback-Leibler divergence of two views, summed over their frames.

    Each view learns from the other one, which gets no gradient (CR-CTC, Yao et al. 2024, equation
    4).

    Args:
        first: (B, E, V) log-probabilities, as `second`.
        lengths: (B,) valid frames.
    """
    valid = torch.arange(first.size(1), device=first.device) < lengths[:, None]  # (B, E)

    def learn(student: Tensor, teacher: Tensor) -> Tensor:
        divergence = functional.kl_div(student, teacher, reduction="none", log_target=True)
        return divergence.sum(dim=2)  # (B, E)

    both = learn(first, second.detach()) + learn(second, first.detach())
    return 0.5 * both.masked_fill(~valid, 0.0).sum(dim=1)


def draw_contexts(config: ContextConfig, views: str, draw: random.Random) -> list[Context]:
    """Return the context of each view of a batch.

    "one" view, or two in the "same" context, have full context with the probability `full_share`;
    with "full_and_chunks" the first view has full context and the second never has.
    """
    if views == "full_and_chunks":
        return [FULL, draw_chunks(config, draw)]
    full = draw.random() < config.full_share
    context = FULL if full else draw_chunks(config, draw)
    return [context] * (1 if views == "one" else 2)


def draw_chunks(config: ContextConfig, draw: random.Random) -> Context:
    chunk_size, left_context = draw.choice(config.chunk_sizes), draw.choice(config.left_contexts)
    # A single value is not drawn, so that older trainings stay the same, bit for bit.
    right = config.right_contexts
    right_context = right[0] if len(right) == 1 else draw.choice(right)
    return Context(chunk_size, left_context, right_context)


def to_few_lengths(feats: Tensor) -> Tensor:
    """Pad (B, T, F) features with zeros to one of 8 lengths an octave, at most 12 % longer.

    On a CPU, oneDNN compiles a kernel for each shape of a bfloat16 product. If every batch has
    another length, compiling takes as much time as the products save.
    """
    stride = 1 << max(0, feats.size(1).bit_length() - 4)
    return functional.pad(feats, (0, 0, 0, -feats.size(1) % stride))


def not_finite(scored: list[tuple[list[str], Tensor]]) -> list[str]:
    """Return the ids of utterances whose loss is not finite, from ids and losses of batches."""
    return [
        name
        for names, losses in scored
        for name, finite in zip(names, torch.isfinite(losses).tolist(), strict=True)
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
