"""A layer of the encoder (Gulati et al. 2020)."""

from typing import NamedTuple

from torch import Tensor, nn

from asrkit.model.attention import ChunkAttention
from asrkit.model.convolution import CausalConvolution
from asrkit.model.feed_forward import FeedForward


class Step(NamedTuple):
    """Everything but its past that all layers of a step share."""

    valid: Tensor  # (B, 1, n, 1, M+C+R) bool, see `valid_keys`
    vectors: Tensor  # (B, n·(C+R), X), which the encoding attaches to the keys
    ahead: int  # R


class LayerPast(NamedTuple):
    """The past of a layer."""

    keys: Tensor  # (B, H, M, Dk), Dk = Dh + extra_key_dim of the encoding
    values: Tensor  # (B, H, M, Dh)
    conv: Tensor  # (B, D, K-1)


class ConformerLayer(nn.Module):
    """Half feed-forward, attention, convolution, half feed-forward, LayerNorm."""

    def __init__(
        self,
        attention: ChunkAttention,
        dim: int,
        ffn_dim: int,
        kernel_size: int,
        conv_norm: str,
        conv_padding: str,
    ) -> None:
        super().__init__()
        dropout = attention.dropout.p
        self.ffn1 = FeedForward(dim, ffn_dim, dropout)
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = attention
        self.convolution = CausalConvolution(dim, kernel_size, dropout, conv_norm, conv_padding)
        self.ffn2 = FeedForward(dim, ffn_dim, dropout)
        self.norm = nn.LayerNorm(dim)

    def init_state(self, batch_size: int, left_context: int, like: Tensor) -> LayerPast:
        """Return the past of streams that have not begun, with room for M frames; device and type
        are those of `like`."""
        keys, values = self.attention.init_state(batch_size, left_context, like)
        return LayerPast(keys, values, self.convolution.init_state(batch_size, like))

    def forward(
        self, x: Tensor, step: Step, table: Tensor, past: LayerPast
    ) -> tuple[Tensor, LayerPast]:
        """(B, T, D), T = n·(C+R), and this layer's past -> (B, T, D), and its new past."""
        x = x + 0.5 * self.ffn1(x)
        context, keys, values = self.attention(
            self.attention_norm(x),
            step.valid,
            table,
            step.vectors,
            past.keys,
            past.values,
            step.ahead,
        )
        x = x + context
        convolved, conv = self.convolution(x, past.conv, step.valid.size(2), step.ahead)
        x = x + convolved
        x = x + 0.5 * self.ffn2(x)
        return self.norm(x), LayerPast(keys, values, conv)
