"""Offline and streaming paths of one network in one context, a module for each toolkit.

A module `of_TOOLKIT` has `pairs(settings)`, which makes the calls that the toolkit's own
documentation shows.
"""

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

SEED = 0
LABELS = 32  # of a head with random weights; the first label is the blank
RANDOM = "random"

Run = Callable[[np.ndarray], "Tensor | str"]  # samples (n,) at 16 kHz -> (E, V), or a text


class Settings(NamedTuple):
    """Values that the command passes to every toolkit."""

    samples: list[np.ndarray]  # at 16 kHz, for statistics that a toolkit's features need
    layers: int  # of networks with random weights
    folder: Path  # empty, for files that a toolkit wants to read


class Pair(NamedTuple):
    """Two paths of the same network."""

    toolkit: str  # name and version
    weights: str  # name of the model, or RANDOM
    source: str  # where both paths begin, "samples" or "features"
    context: str  # chunk, left and right context, in milliseconds
    offline: Run  # whole recordings, in the context of streaming
    streaming: Run  # chunks
    calls: str  # of both paths
    cause: str  # of the difference


class RandomHead(torch.nn.Module):
    """A linear layer with random weights from encoder outputs (…, D) to log-probabilities.

    Outputs are normalised, so that differences of several toolkits have one scale.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = torch.randn(LABELS, dim, generator=torch.Generator().manual_seed(SEED))

    def forward(self, encoded: Tensor) -> Tensor:
        normal = torch.nn.functional.layer_norm(encoded, encoded.shape[-1:])
        logits = normal @ self.weight.T / encoded.size(-1) ** 0.5
        return (2 * logits).log_softmax(dim=-1)


def greedy(output: "Tensor | str") -> "tuple[int, ...] | str":
    """Return the labels of the best path of (E, V), blank 0; a text as it is."""
    if isinstance(output, str):
        return output
    return tuple(label for label, _ in groupby(output.argmax(dim=-1).tolist()) if label)
