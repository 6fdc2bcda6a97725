"""Transformer-XL's relative positions, with sinusoids or a learned table."""

import math

import torch
from torch import Tensor, nn

from asrkit.model.positions.distances import (
    DistancePosition,
    clipped,
    frequencies,
    learned_table,
    waves,
)


class BiasedRelative(DistancePosition):
    """Base class of both kinds, with the biases u and v of each head."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__(dim, num_heads)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, 1, 1, dim // num_heads))  # u
        self.position_bias = nn.Parameter(torch.zeros(num_heads, 1, 1, dim // num_heads))  # v

    def terms(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        scale = 1.0 / math.sqrt(self.head_dim)
        return (queries + self.content_bias) * scale, (queries + self.position_bias) * scale


class RelativePosition(BiasedRelative):
    """Kind `relative`: projected sinusoids of the signed distance.

        score(i, j) = ((q_i + u)·k_j + (q_i + v)·W r_{i-j}) / sqrt(Dh)

    Dai et al. 2019 (Transformer-XL), section 3.3 and appendix B; Gulati et al. 2020. XLNet's scheme
    is the same; its two streams concern language modelling. Published code has three mistakes:
    no shift, so positions are those of the keys in the cache and not relative; a shift of a matrix
    that is padded at the wrong end; tables that limit the length.

    Args:
        max_distance: Z; distances beyond ±Z count as ±Z. None: no limit.
    """

    def __init__(self, dim: int, num_heads: int, max_distance: int | None = None) -> None:
        super().__init__(dim, num_heads)
        self.max_distance = max_distance
        self.projection = nn.Linear(dim, dim, bias=False)

    def vectors(self, distances: Tensor) -> Tensor:
        if self.max_distance is not None:
            distances = distances.clamp(-self.max_distance, self.max_distance)
        weight = self.projection.weight
        sinusoids = waves(distances, frequencies(weight.size(1), distances.device))
        return self.projection(sinusoids.to(weight.dtype))


class LearnedRelativePosition(BiasedRelative):
    """Kind `relative_learned`: a learned row for each distance instead of W r.

        score(i, j) = ((q_i + u)·k_j + (q_i + v)·e_clip(i-j)) / sqrt(Dh)

    Huang et al. 2019 (Music Transformer), section 3.4, with Transformer-XL's u and v. Their
    "skewing" is `shift` here.

    Args:
        max_distance: Z; e has 2Z+1 rows, and distances beyond ±Z count as ±Z.
    """

    def __init__(self, dim: int, num_heads: int, max_distance: int = 64) -> None:
        super().__init__(dim, num_heads)
        self.max_distance = max_distance
        self.embeddings = learned_table(max_distance, dim)

    def vectors(self, distances: Tensor) -> Tensor:
        return clipped(self.embeddings, distances)
