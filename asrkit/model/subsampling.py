"""Convolutional subsampling: 2, 4, 6 or 8 feature frames become one encoder frame.

A kind of subsampling has a `rate`, see `FrameRate`. Its past is the last input frame of the first
convolution and of each later one:

    encoded, past_feats, past_hidden = subsampling(feats, real, past_feats, past_hidden)

A step reads all frames that its output frames see. Frames seen ahead are passed again in the next
step.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.context import FrameRate, rounding
from asrkit.registry import Kinds

PIECE = 64  # encoder frames of all rows whose subsampling is computed at once


class Subsampling(nn.Module):
    """Base class of all kinds: feature frames to encoder frames.

        feats (B, T, F), real (B, T), past_feats (B, …), past_hidden (B, S, …)
            -> (B, E, D), and the two new pasts

    T is whole encoder frames and the look-ahead. `real` says which frames contain samples.

    Attributes:
        rate: relation of feature frames to encoder frames.
        feats_shape: shape of a row's past feature frames.
        hidden_shape: shape of a row's past between the convolutions.
    """

    rate: FrameRate

    def __init__(self, rate: FrameRate, feats_shape: list[int], hidden_shape: list[int]) -> None:
        super().__init__()
        self.rate, self.feats_shape, self.hidden_shape = rate, feats_shape, hidden_shape

    def init_state(self, batch_size: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two pasts of streams that have not started."""
        feats = [batch_size] + self.feats_shape  # noqa: RUF005, for TorchScript
        return like.new_zeros(feats), like.new_zeros([batch_size] + self.hidden_shape)  # noqa: RUF005

    def run(
        self, feats: Tensor, real: Tensor, past_feats: Tensor, past_hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute `forward`, in pieces where that is faster."""
        if not torch.jit.is_scripting():  # alone in its line, or TorchScript would compile the rest
            exported = torch.compiler.is_compiling() or torch.jit.is_tracing()
            if feats.device.type == "cpu" and not exported:
                return in_pieces(self, self.rate, feats, real, past_feats, past_hidden)
        return self.forward(feats, real, past_feats, past_hidden)


def in_pieces(
    subsampling: Callable[..., tuple[Tensor, Tensor, Tensor]], rate: FrameRate, feats: Tensor,
    real: Tensor, past_feats: Tensor, past_hidden: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute a step of a `Subsampling`, a piece after the other: small tensors fit into the cache,
    and the allocator reuses their memory."""
    size = rate.factor * max(16, PIECE // max(1, feats.size(0)))
    parts: list[Tensor] = []
    for first in range(0, max(1, feats.size(1) - rate.lookahead), size):
        piece = slice(first, first + size + rate.lookahead)
        part, past_feats, past_hidden = subsampling(
            feats[:, piece], real[:, piece], past_feats, past_hidden
        )
        parts.append(part)
    subsampled = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    return subsampled, past_feats, past_hidden


class CausalSubsampling(Subsampling):
    """3x3 convolutions of stride 2, each with one frame of past, then a linear layer.

    Base class of kinds with a fixed `num_stages`.

    Args:
        num_stages: number of convolutions: 2^num_stages feature frames become one encoder frame.
        channels: S; D if None.
        separable: make each convolution after the first a depthwise and a pointwise one (Howard
            et al. 2017, MobileNets): S·(9 + S) products in place of 9·S².
        pad_stages: pad as NeMo's causal `striding` does, or its `dw_striding` if separable: at
            every stage two frames of zeros before the stream and one after it. Encoder frame e then
            ends with feature frame factor·e, and factor - 1 frames precede the first frame of a
            stream. These frames are zero, also after each stage.
        lopsided: pad two bins below and one above in frequency, instead of one on each side.
    """

    def __init__(
        self,
        num_mels: int,
        dim: int,
        num_stages: int,
        channels: int | None,
        separable: bool,
        pad_stages: bool,
        lopsided: bool,
    ) -> None:
        channels = dim if channels is None else channels
        widths = [num_mels // 2 + lopsided]  # bins after each stage
        while len(widths) < num_stages:
            widths.append(widths[-1] // 2 + lopsided)
        factor = 2**num_stages
        rate = FrameRate(factor, lead_frames=factor - 1 if pad_stages else 0)
        super().__init__(rate, [1, num_mels], [channels, 1, sum(widths[:-1])])
        self.widths, self.lopsided = widths[:-1], lopsided
        padding = (0, 0) if lopsided else (0, 1)
        self.conv1 = nn.Conv2d(1, channels, 3, stride=2, padding=padding)
        for number in range(2, num_stages + 1):
            groups = channels if separable else 1
            conv = nn.Conv2d(channels, channels, 3, stride=2, padding=padding, groups=groups)
            both = nn.Sequential(conv, nn.Conv2d(channels, channels, 1)) if separable else conv
            self.add_module(f"conv{number}", both)
        self.out = nn.Linear(channels * widths[-1], dim)

    def forward(
        self, feats: Tensor, real: Tensor, past_feats: Tensor, past_hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute one step. The pasts are the feature frame before the step, (B, 1, F), and the
        last output frame of each stage but the last, of widths F1, F2, …: (B, S, 1, F1+F2+…)."""
        x = torch.cat([past_feats, feats], dim=1)[:, None]  # (B, 1, 1+T, F)
        last: list[Tensor] = []
        first = 0  # bin of past_hidden
        for i, stage in enumerate(self.children()):  # conv1, conv2, …, out
            if 0 < i <= len(self.widths):
                if self.rate.lead_frames > 0:
                    x, real = zero_outside(x, real)
                past = past_hidden[..., first : first + x.size(3)]
                first += x.size(3)
                x = torch.cat([past, x], dim=2)  # (B, S, 1+T/2, F1) before the second
                last.append(x[:, :, -1:])
            if i <= len(self.widths):
                x = functional.relu_(stage(functional.pad(x, (2, 1)) if self.lopsided else x))
        x = self.out(x.transpose(1, 2).flatten(2))  # (B, T/factor, D)
        # Copies: a view would keep the whole step in memory until the stream's next step.
        return x, feats[:, -1:].clone(), torch.cat(last, dim=3)


class Conv4Subsampling(CausalSubsampling):
    """Two convolutions (Gulati et al. 2020): 4 feature frames become one encoder frame.

    The second convolution costs S²: with S = 256 a quarter of the arithmetic of 12 layers of that
    width, with S = 64 a fortieth. docs/evidence/tried.md compares the word error rates.
    `CausalSubsampling` documents the options.
    """

    def __init__(
        self,
        num_mels: int,
        dim: int,
        channels: int | None = None,
        separable: bool = False,
        pad_stages: bool = False,
    ) -> None:
        if num_mels % 4:
            raise ValueError(f"num_mels must be a multiple of 4, got {num_mels}")
        super().__init__(num_mels, dim, 2, channels, separable, pad_stages, lopsided=pad_stages)


class Conv8Subsampling(CausalSubsampling):
    """Three convolutions, the last two separable: 8 feature frames become one encoder frame.

    The subsampling of FastConformer (Rekesh et al. 2023), padded in frequency as NeMo's causal
    `dw_striding` does. All layers take half as long as with `Conv4Subsampling`, because there are
    half as many encoder frames. `CausalSubsampling` documents the options.
    """

    def __init__(
        self, num_mels: int, dim: int, channels: int | None = None, pad_stages: bool = False
    ) -> None:
        super().__init__(num_mels, dim, 3, channels, True, pad_stages, lopsided=True)


def zero_outside(x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Zero the frames of a stage that are outside the stream: x (B, S, T, F), real (B, 2T).

    A frame is inside if one of its two input frames is. The new mask is (B, T).
    """
    real = real[:, ::2] | real[:, 1::2]
    return x.masked_fill(~real[:, None, :, None], 0.0), real


class ValidSubsampling(Subsampling):
    """Convolutions without padding, in time and in frequency, then a linear layer.

    Base class of kinds with fixed `stages`. An encoder frame needs all feature frames that it
    sees, and the past is empty.

    Args:
        num_mels: F, at least factor + lookahead.
        channels: S; D if None.
    """

    stages: ClassVar[list[tuple[int, int]]]  # size and stride of each convolution
    lookahead: ClassVar[int]

    def __init__(self, num_mels: int, dim: int, channels: int | None = None) -> None:
        rate = FrameRate(math.prod(stride for _, stride in self.stages), self.lookahead)
        least = rate.factor + rate.lookahead
        if num_mels < least:
            raise ValueError(f"num_mels must be at least {least}, got {num_mels}")
        channels = dim if channels is None else channels
        super().__init__(rate, [0, num_mels], [channels, 0, 1])
        layers: list[nn.Module] = []
        for i, (size, stride) in enumerate(self.stages):
            width = channels if i else 1
            layers += [nn.Conv2d(width, channels, size, stride=stride), nn.ReLU(inplace=True)]
        self.conv = nn.Sequential(*layers)
        self.out = nn.Linear(channels * ((num_mels - rate.lookahead) // rate.factor), dim)

    def forward(
        self, feats: Tensor, real: Tensor, past_feats: Tensor, past_hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute one step of n·factor + lookahead frames; the pasts are empty."""
        x = self.conv(feats[:, None])  # (B, S, n, F')
        x = self.out(x.transpose(1, 2).flatten(2))  # (B, n, D)
        return x, past_feats.clone(), past_hidden.clone()


class Conv4ValidSubsampling(ValidSubsampling):
    """`Conv4Subsampling` without padding, WeNet's `conv2d`: frame e sees frames 4e … 4e+6."""

    stages: ClassVar = [(3, 2), (3, 2)]
    lookahead = 3


class Conv6ValidSubsampling(ValidSubsampling):
    """WeNet's `conv2d6`: frame e sees frames 6e … 6e+10."""

    stages: ClassVar = [(3, 2), (5, 3)]
    lookahead = 5


class Conv8ValidSubsampling(ValidSubsampling):
    """WeNet's `conv2d8`: frame e sees frames 8e … 8e+14."""

    stages: ClassVar = [(3, 2), (3, 2), (3, 2)]
    lookahead = 7


class WhisperSubsampling(Subsampling):
    """Two convolutions over time and GELU: `stride` feature frames become one encoder frame.

    The stem of Whisper's encoder (Radford et al. 2022, section 2.2), where stride is 2: both have 3
    taps and zeros around the stream. A larger stride S has S + 1 taps in the second convolution.
    Encoder frame e sees feature frames S·e - 2 … S·e + S.

    Args:
        stride: feature frames of an encoder frame: 2, 4 or 8.
    """

    def __init__(self, num_mels: int, dim: int, stride: int = 2) -> None:
        if stride not in (2, 4, 8):
            raise ValueError(f"stride must be 2, 4 or 8, got {stride}")
        super().__init__(FrameRate(stride, lookahead=1), [1, num_mels], [dim, 1, 1])
        self.conv1 = nn.Conv1d(num_mels, dim, 3)
        self.conv2 = nn.Conv1d(dim, dim, stride + 1, stride=stride)

    def forward(
        self, feats: Tensor, real: Tensor, past_feats: Tensor, past_hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute one step of S·n + 1 frames. The pasts are the feature frame before the step,
        (B, 1, F), and the output frame of the first convolution before it, (B, D, 1, 1)."""
        x = torch.cat([past_feats, feats], dim=1).transpose(1, 2)  # (B, F, 1+S·n+1)
        x = functional.gelu(self.conv1(x))  # (B, D, S·n)
        x = x.masked_fill(~real[:, None, :-1], 0.0)
        x = torch.cat([past_hidden.squeeze(3), x], dim=2)  # (B, D, 1+S·n)
        encoded = functional.gelu(self.conv2(x)).transpose(1, 2)  # (B, n, D)
        return encoded, feats[:, -2:-1].clone(), x[:, :, -1:].unsqueeze(3).clone()


KINDS: Kinds[Any] = Kinds(
    "subsampling",
    {
        "conv4": Conv4Subsampling,
        "conv8": Conv8Subsampling,
        "conv4_valid": Conv4ValidSubsampling,
        "conv6_valid": Conv6ValidSubsampling,
        "conv8_valid": Conv8ValidSubsampling,
        "whisper": WhisperSubsampling,
    },
    ("num_mels", "dim"),
)


def build_subsampling(subsampling: str | Mapping[str, Any], num_mels: int, dim: int) -> Subsampling:
    """Return the subsampling of a kind, given alone or with its options."""
    cls, options = KINDS.chosen(subsampling)
    return cls(num_mels, dim, **options)


def num_valid(lengths: Tensor, rate: FrameRate) -> Tensor:
    """Return E for each row's number of feature frames: (B,) -> (B,)."""
    return (lengths + rounding(rate)).clamp(min=0) // rate.factor
