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
    """Values that the command passes to every toolkit.

    Attributes:
        samples: recordings at 16 kHz, for statistics that a toolkit's features need.
        layers: number of layers of networks with random weights.
        folder: empty folder for files that a toolkit wants to read.
    """

    samples: list[np.ndarray]
    layers: int
    folder: Path


class Pair(NamedTuple):
    """Two paths of the same network.

    Attributes:
        toolkit: name and version.
        weights: name of the model, or "random".
        source: where both paths begin, "samples" or "features".
        context: chunk, left and right context, in milliseconds.
        offline: the path of whole recordings, in the context of streaming.
        streaming: the path of chunks.
        calls: calls of both paths.
        cause: reason for the difference.
    """

    toolkit: str
    weights: str
    source: str
    context: str
    offline: Run
    streaming: Run
    calls: str
    cause: str


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
