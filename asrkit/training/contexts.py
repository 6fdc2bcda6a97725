"""The contexts that training draws for a batch."""

import random

from asrkit.config import ContextConfig
from asrkit.model import FULL_CONTEXT


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
