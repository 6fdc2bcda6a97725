"""Building a network from a configuration; the only place that depends on both."""

from collections.abc import Callable, Sequence

import torch

from asrkit.config.model import ModelConfig
from asrkit.model import ConformerEncoder, Network, build_head


def build_model(config: ModelConfig, vocab_size: int) -> Network:
    """Return the network with new weights."""
    options = config.model_dump(exclude={"frontend", "head", "kernels"})
    encoder = ConformerEncoder(**options, kernels=config.kernels == "auto")
    return Network(encoder, build_head(config.head.model_dump(), encoder.dim, vocab_size))


def frames_needed(config: ModelConfig) -> Callable[[Sequence[int]], int]:
    """Return the function that computes how many frames the head needs for tokens."""
    with torch.device("meta"):  # no weight is needed
        return build_head(config.head.model_dump(), config.dim, 1).frames_needed
