"""What training draws for a batch: how it sounds, what is masked, and in which context."""

import random

from torch import Tensor

from asrkit.audio import SpecAugment, change_gain, warp_frequencies
from asrkit.config import AugmentationConfig, Config, ContextConfig
from asrkit.model import FULL_CONTEXT, View
from asrkit.training.optimizer import ramp


def draw_views(
    feats: Tensor,
    lengths: Tensor,
    config: Config,
    spec_augment: SpecAugment,
    progress: float,
    draw: random.Random,
) -> list[View]:
    """One or two views of (B, T, F) features; `progress` is the share of all training done."""
    masked = config.augmentation.spec_probability
    masked *= ramp(progress, config.augmentation.spec_ramp)
    return [
        View(
            spec_augment(heard(feats, config.augmentation), lengths, masked),
            chunk_size,
            left_context,
        )
        for chunk_size, left_context in draw_contexts(config.context, config.training.views, draw)
    ]


def heard(feats: Tensor, config: AugmentationConfig) -> Tensor:
    """The features of another voice, at another level."""
    return change_gain(warp_frequencies(feats, config.frequency_warp), config.gain_db)


def draw_contexts(config: ContextConfig, views: str, draw: random.Random) -> list[tuple[int, int]]:
    """Chunk size and left context of each view of a batch.

    "one" view, or two of the "same" context, are in full context with the probability
    `full_share`; with "full_and_chunks" one view is, and the other never.
    """
    if views == "full_and_chunks":
        return [(FULL_CONTEXT, 0), draw_chunks(config, draw)]
    full = draw.random() < config.full_share
    context = (FULL_CONTEXT, 0) if full else draw_chunks(config, draw)
    return [context] * (1 if views == "one" else 2)


def draw_chunks(config: ContextConfig, draw: random.Random) -> tuple[int, int]:
    return draw.choice(config.chunk_sizes), draw.choice(config.left_contexts)
