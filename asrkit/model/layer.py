"""Layers of the encoder: the Conformer's (Gulati et al. 2020) and the Transformer's."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.model.attention import ChunkAttention, LayerStep
from asrkit.model.chunks import joined_windows, split_ahead
from asrkit.model.cpu_training import Dropout
from asrkit.registry import refusal


class FeedForward(nn.Module):
    """LayerNorm, linear, activation, linear (Gulati et al. 2020, 2.3): (B, T, D) -> (B, T, D)."""

    def __init__(
        self, dim: int, hidden_dim: int, dropout: float, activation: type[nn.Module] = nn.SiLU
    ) -> None:
        super().__init__()
        self.activation = activation()
        self.norm = nn.LayerNorm(dim)
        self.expand = nn.Linear(dim, hidden_dim)
        self.project = nn.Linear(hidden_dim, dim)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(self.activation(self.expand(self.norm(x))))  # (B, T, FFN)
        return self.dropout(self.project(hidden))


class Affine(nn.Module):
    """A scale and a bias for each channel: (…, D) -> (…, D).

    A trained BatchNorm with its running statistics is such a layer.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


NORMS: dict[str, type[nn.Module]] = {"layer_norm": nn.LayerNorm, "affine": Affine}
PADDINGS = ("depthwise", "pointwise")


class CausalConvolution(nn.Module):
    """Pointwise, GLU, causal depthwise, norm, SiLU, pointwise (Gulati et al. 2020, 2.2).

    The norm is not a BatchNorm: with statistics over time or batch, padding and other rows would
    influence a stream.

    Args:
        kernel_size: K, the current frame and the K-1 frames before it.
        norm: one of NORMS.
        padding: one of PADDINGS: layer whose input is padded with zeros before the stream. With
            "pointwise", as in WeNet, the past of the depthwise layer contains the pointwise bias.
    """

    def __init__(self, dim: int, kernel_size: int, dropout: float, norm: str, padding: str) -> None:
        super().__init__()
        if norm not in NORMS:
            raise ValueError(f"conv_norm {refusal(norm, NORMS)}")
        if padding not in PADDINGS:
            raise ValueError(f"conv_padding {refusal(padding, PADDINGS)}")
        self.pads_pointwise = padding == "pointwise"
        self.norm = nn.LayerNorm(dim)
        self.expand = nn.Linear(dim, 2 * dim)
        self.depthwise = nn.Conv1d(dim, dim, kernel_size, groups=dim)
        self.depthwise_norm = NORMS[norm](dim)
        self.project = nn.Linear(dim, dim)
        self.dropout = Dropout(dropout)

    def init_state(self, batch_size: int, like: Tensor) -> Tensor:
        """Return the past of streams that have not started: zeros (B, D, K-1)."""
        channels, _, kernel_size = self.depthwise.weight.shape
        return like.new_zeros(batch_size, channels, kernel_size - 1)

    def forward(
        self, x: Tensor, past: Tensor, block: int = 1, ahead: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Compute one step.

        Args:
            x: (B, T, D), T = n·(C+R), see `chunks`.
            past: (B, D, K-1).
            block: C + R; it does not matter with R = 0.

        Returns:
            (B, T, D), and the new past.
        """
        x, bias = functional.glu(self.expand(self.norm(x)), dim=2), self.depthwise.bias  # (B, T, D)
        if self.pads_pointwise:
            # Subtract the padding's value, so that the past before a stream is zero in both cases.
            before = functional.glu(self.expand.bias, dim=0)  # (D,)
            x = x - before
            assert bias is not None
            bias = bias + self.depthwise.weight.sum(dim=[1, 2]) * before
        chunks, seen = split_ahead(x.transpose(1, 2).unsqueeze(3), block, ahead)
        history = torch.cat([past, chunks.squeeze(3)], dim=2)  # (B, D, K-1+n·C)
        # The input is an image with a row for each block, because ONNX Runtime's fast depthwise
        # convolution accepts only images.
        image = history[:, :, None]
        if seen is not None:
            window = past.size(2) + block
            image = joined_windows(history.unsqueeze(3), seen, block, window).squeeze(4)
        weight = self.depthwise.weight[:, :, None]
        convolved = functional.conv2d(image, weight, bias, groups=self.depthwise.groups)
        x = convolved.flatten(2).transpose(1, 2)  # (B, T, D)
        x = self.project(functional.silu(self.depthwise_norm(x)))
        return self.dropout(x), history[:, :, history.size(2) - past.size(2) :]


class LayerPast(NamedTuple):
    """The past of a layer. All layers of an encoder have pasts of equal sizes."""

    keys: Tensor  # (B, H, M, Dk), Dk = Dh + extra_key_dim of the encoding
    values: Tensor  # (B, H, M, Dh)
    conv: Tensor  # (B, D, K-1); (B, 0, 0) without a convolution


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
        """Return the past of streams that have not started, with room for M frames."""
        keys, values = self.attention.init_state(batch_size, left_context, like)
        return LayerPast(keys, values, self.convolution.init_state(batch_size, like))

    def forward(
        self, x: Tensor, step: LayerStep, table: Tensor, past: LayerPast
    ) -> tuple[Tensor, LayerPast]:
        """(B, T, D), T = n·(C+R), and this layer's past -> (B, T, D), and its new past."""
        x = x + 0.5 * self.ffn1(x)
        context, keys, values = self.attention(
            self.attention_norm(x), step, table, past.keys, past.values
        )
        x = x + context
        block = step.valid.size(4) - past.keys.size(2)  # C + R
        convolved, conv = self.convolution(x, past.conv, block, step.ahead)
        x = x + convolved
        x = x + 0.5 * self.ffn2(x)
        return self.norm(x), LayerPast(keys, values, conv)


class TransformerLayer(nn.Module):
    """Attention and feed-forward, each after its LayerNorm; no norm at the end.

    The layer of Whisper's encoder (Radford et al. 2022, section 2.2).
    """

    def __init__(self, attention: ChunkAttention, dim: int, ffn_dim: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = attention
        self.ffn = FeedForward(dim, ffn_dim, attention.dropout.p, nn.GELU)

    def init_state(self, batch_size: int, left_context: int, like: Tensor) -> LayerPast:
        """Return the past of streams that have not started, with room for M frames."""
        keys, values = self.attention.init_state(batch_size, left_context, like)
        return LayerPast(keys, values, like.new_zeros(batch_size, 0, 0))

    def forward(
        self, x: Tensor, step: LayerStep, table: Tensor, past: LayerPast
    ) -> tuple[Tensor, LayerPast]:
        """(B, T, D), T = n·(C+R), and this layer's past -> (B, T, D), and its new past."""
        context, keys, values = self.attention(
            self.attention_norm(x), step, table, past.keys, past.values
        )
        x = x + context
        return x + self.ffn(x), LayerPast(keys, values, past.conv)
