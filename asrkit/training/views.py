"""Random views of a training batch: augmented features, each with a context."""

import random

from torch import Tensor
from torch.nn import functional

from asrkit.audio import Frontend, SpecAugment, change_gain, warp_frequencies
from asrkit.config import AugmentationConfig, Config, ContextConfig
from asrkit.model import FULL, Context
from asrkit.training.loss import View
from asrkit.training.optimizer import ramp


def draw_views(
    feats: Tensor,
    lengths: Tensor,
    config: Config,
    frontend: Frontend,
    spec_augment: SpecAugment,
    progress: float,
    draw: random.Random,
    masks: random.Random,
    cycle: int = 0,
) -> list[View]:
    """Return one or two views of (B, T, F) features, whose lengths are on the CPU.

    Args:
        progress: share of all training done.
        draw: generator of the contexts and offsets.
        masks: generator of what is masked.
        cycle: frames after which the position encoding repeats.
    """
    masked = config.augmentation.spec_probability
    masked *= ramp(progress, config.augmentation.spec_ramp)
    return [
        View(
            spec_augment(perturbed(feats, config.augmentation, frontend), lengths, masked, masks),
            context,
            draw.randrange(cycle) if cycle else 0,
        )
        for context in draw_contexts(config.context, config.training.views, draw)
    ]


def to_few_lengths(feats: Tensor) -> Tensor:
    """Pad (B, T, F) features with zeros to one of 8 lengths an octave, at most 12 % longer.

    On a CPU, oneDNN compiles a kernel for each shape of a bfloat16 product. If every batch has
    another length, compiling takes as much time as the products save.
    """
    stride = 1 << max(0, feats.size(1).bit_length() - 4)
    return functional.pad(feats, (0, 0, 0, -feats.size(1) % stride))


def perturbed(feats: Tensor, config: AugmentationConfig, frontend: Frontend) -> Tensor:
    """Change the vocal tract's length and the level of the features at random."""
    warped = warp_frequencies(feats, config.frequency_warp, frontend)
    return change_gain(warped, config.gain_db * frontend.log_scale)


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
