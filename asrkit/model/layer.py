"""A layer of the encoder (Gulati et al. 2020)."""

from torch import Tensor, nn

from asrkit.model.attention import ChunkAttention
from asrkit.model.convolution import CausalConvolution
from asrkit.model.feed_forward import FeedForward


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

    def forward(
        self,
        x: Tensor,
        valid: Tensor,
        table: Tensor,
        vectors: Tensor,
        past_keys: Tensor,
        past_values: Tensor,
        past_conv: Tensor,
        ahead: int,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(B, T, D) and this layer's past -> (B, T, D) and its new past; T = n·(C+R)."""
        x = x + 0.5 * self.ffn1(x)
        context, keys, values = self.attention(
            self.attention_norm(x), valid, table, vectors, past_keys, past_values, ahead
        )
        x = x + context
        num_blocks = valid.size(2) if ahead > 0 else 1
        convolved, conv = self.convolution(x, past_conv, num_blocks, ahead)
        x = x + convolved
        x = x + 0.5 * self.ffn2(x)
        return self.norm(x), keys, values, conv
