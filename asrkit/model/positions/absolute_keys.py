"""Absolute positions of only the keys."""

import math

import torch
from torch import Tensor, nn

from asrkit.model.positions.base import FramePosition, Position, frame_numbers
from asrkit.model.positions.distances import frequencies, waves


class FrameSinusoids(FramePosition):
    """Sinusoids of each frame's index, for the keys of all layers."""

    def table(self, like: Tensor) -> Tensor:
        """Return the frequencies, (D/2,) in float64; see `SinusoidalPosition.table`."""
        return frequencies(self.dim, like.device)

    def vectors(self, x: Tensor, position: Tensor, table: Tensor) -> Tensor:
        numbers = frame_numbers(x, position)  # (B, T)
        return waves(numbers.flatten(), table).to(x.dtype).unflatten(0, numbers.shape)


class AbsoluteKeysPosition(Position):
    """Kind `absolute_keys`: projected sinusoids of the key's index in its stream.

        score(i, j) = ((q_i + u)·k_j + (q_i + v)·W r_j) / sqrt(Dh)

    WeNet's `rel_pos`: Transformer-XL's scores (see `RelativePosition`) without the shift, so they
    depend on the key's index, not on the distance. Use it for networks that were trained with it,
    and `relative` for others. W r_j is added to each new key. u·k_j + v·W r_j is the same for all
    queries and is stored as one more number of the key. The cache holds both, so no table limits
    the length of a stream.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__(dim, num_heads)
        self.extra_key_dim = 1
        self.content_bias = nn.Parameter(torch.zeros(num_heads, 1, dim // num_heads))  # u
        self.position_bias = nn.Parameter(torch.zeros(num_heads, 1, dim // num_heads))  # v
        self.projection = nn.Linear(dim, dim, bias=False)

    @staticmethod
    def on_frames(dim: int) -> FramePosition:
        return FrameSinusoids(dim)

    def attach(self, keys: Tensor, vectors: Tensor) -> Tensor:
        places = self.projection(vectors).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
        shared = keys * self.content_bias + places * self.position_bias  # (B, H, T, Dh)
        return torch.cat([keys + places, shared.sum(dim=3, keepdim=True)], dim=3)

    def terms(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        with_one = torch.cat([queries, torch.ones_like(queries[..., :1])], dim=-1)
        return with_one / math.sqrt(self.head_dim), queries[..., :0]
