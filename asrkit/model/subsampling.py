"""Convolutional subsampling: 4, 6 or 8 feature frames become one encoder frame.

A kind of subsampling has a `rate`, see `FrameRate`. Its past is the last frame of its input and of
each stage in between:

    encoded, past_feats, past_hidden = subsampling(feats, real, past_feats, past_hidden)

A step takes what its frames see: the frames seen ahead come again in the next step.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.model import cpu_gradients
from asrkit.model.context import FrameRate
from asrkit.registry import Kinds


class OneChannelConvolution(nn.Conv2d):
    """A first convolution, of features, which are one channel."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.jit.is_scripting():  # noqa: SIM102, or TorchScript would compile it
            if cpu_gradients.serves(x, self.weight):
                return cpu_gradients.OneChannel.apply(
                    x, self.weight, self.bias, self.stride, self.padding
                )
        return self._conv_forward(x, self.weight, self.bias)


class Subsampling(nn.Module):
    """The base of all kinds: feature frames to encoder frames, (B, T, F) -> (B, E, D).

    Attributes:
        rate: how feature frames become encoder frames.
        feats_shape: shape of a row's past feature frames.
        hidden_shape: shape of a row's past between the convolutions.
    """

    rate: FrameRate

    def __init__(self, rate: FrameRate, feats_shape: list[int], hidden_shape: list[int]) -> None:
        super().__init__()
        self.rate, self.feats_shape, self.hidden_shape = rate, feats_shape, hidden_shape

    def init_state(self, batch_size: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two pasts of streams that have not begun."""
        feats = [batch_size] + self.feats_shape  # noqa: RUF005, for TorchScript
        return like.new_zeros(feats), like.new_zeros([batch_size] + self.hidden_shape)  # noqa: RUF005


class Conv4Subsampling(Subsampling):
    """Two 3x3 convolutions of stride 2, then a linear layer (Gulati et al. 2020).

    Args:
        num_mels: F, a multiple of 4.
        dim: D.
        channels: S; D if None. The second convolution costs S² and is a quarter of the arithmetic
            of a 12-layer model, more than half of a 6-layer one.
        separable: the second convolution is one of each channel by itself, then one over channels
            (Howard et al. 2017, MobileNets): S·(9 + S) products in place of 9·S².
        pad_stages: as NeMo's causal `striding` pads, `dw_striding` if separable: at every stage two
            zeros before the stream and one after it, in frequency too. Encoder frame e then ends
            with feature frame 4e, and streams have 3 frames before their first.

    Raises:
        ValueError: if F is not a multiple of 4.
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
        channels = dim if channels is None else channels
        more = 1 if pad_stages else 0
        width1 = num_mels // 2 + more
        rate = FrameRate(4, lead_frames=3 if pad_stages else 0)
        super().__init__(rate, [1, num_mels], [channels, 1, width1])
        padding = (0, 0) if pad_stages else (0, 1)
        self.conv1 = OneChannelConvolution(1, channels, 3, stride=2, padding=padding)
        groups = channels if separable else 1
        conv2 = nn.Conv2d(channels, channels, 3, stride=2, padding=padding, groups=groups)
        self.conv2 = nn.Sequential(conv2, nn.Conv2d(channels, channels, 1)) if separable else conv2
        self.out = nn.Linear(channels * (width1 // 2 + more), dim)

    def forward(
        self, feats: Tensor, real: Tensor, past_feats: Tensor, past_hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One step.

        Args:
            feats: (B, T, F), T a multiple of 4.
            real: (B, T) bool, which of them are of samples.
            past_feats: (B, 1, F), the feature frame before.
            past_hidden: (B, S, 1, F/2), the frame of the first convolution before.

        Returns:
            (B, T/4, D), and the two new pasts.
        """
        x = torch.cat([past_feats, feats], dim=1)[:, None]  # (B, 1, 1+T, F)
        hidden = functional.relu_(self.conv1(self.padded(x)))  # (B, S, T/2, F/2)
        if self.rate.lead_frames > 0:
            hidden, _ = inside(hidden, real)
        hidden = torch.cat([past_hidden, hidden], dim=2)  # (B, S, 1+T/2, F/2)
        x = functional.relu_(self.conv2(self.padded(hidden)))  # (B, S, T/4, F/4)
        x = self.out(x.transpose(1, 2).flatten(2))  # (B, T/4, D)
        # Clones: a view would keep the whole step in memory as long as the stream waits.
        return x, feats[:, -1:].clone(), hidden[:, :, -1:].clone()

    def padded(self, x: Tensor) -> Tensor:
        """With the zeros in frequency that the convolutions do not add themselves."""
        return functional.pad(x, (2, 1)) if self.rate.lead_frames > 0 else x


class ValidSubsampling(Subsampling):
    """Convolutions without padding, in time and in frequency, then a linear layer.

    The base of kinds that say their `stages`. An encoder frame needs all feature frames that it
    sees, and the past is empty.

    Args:
        num_mels: F, at least factor + lookahead.
        dim: D.
        channels: S; D if None.

    Raises:
        ValueError: if F is lower.
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
            layers.append(
                nn.Conv2d(channels, channels, size, stride=stride)
                if i
                else OneChannelConvolution(1, channels, size, stride=stride)
            )
            layers.append(nn.ReLU(inplace=True))
        self.conv = nn.Sequential(*layers)
        self.out = nn.Linear(channels * ((num_mels - rate.lookahead) // rate.factor), dim)

    def forward(
        self, feats: Tensor, real: Tensor, past_feats: Tensor, past_hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One step.

        Args:
            feats: (B, T, F), T = n·factor + lookahead.
            real: (B, T) bool, which of them are of samples.
            past_feats: (B, 0, F).
            past_hidden: (B, S, 0, 1).

        Returns:
            (B, n, D), and the two pasts.
        """
        x = self.conv(feats[:, None])  # (B, S, n, F')
        x = self.out(x.transpose(1, 2).flatten(2))  # (B, n, D)
        return x, past_feats.clone(), past_hidden.clone()


class Conv4ValidSubsampling(ValidSubsampling):
    """As `Conv4Subsampling` without padding, WeNet's `conv2d`: frame e sees frames 4e … 4e+6."""

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


class Conv8Subsampling(Subsampling):
    """Three 3x3 convolutions of stride 2, the later two depthwise-separable, then a linear layer.

    FastConformer's (Rekesh et al. 2023), causal as NeMo's `dw_striding` builds it: in frequency
    two bins are padded below and one above. Of half as many encoder frames as `Conv4Subsampling`
    gives, everything after it takes half the time.

    Args:
        num_mels: F.
        dim: D.
        channels: S; D if None.
        pad_stages: as NeMo pads, too: at every stage two frames of zeros before the stream and one
            after it. Encoder frame e then ends with feature frame 8e, and streams have 7 frames
            before their first: these, and what stages make of them alone, are zero.
    """

    def __init__(
        self, num_mels: int, dim: int, channels: int | None = None, pad_stages: bool = False
    ) -> None:
        channels = dim if channels is None else channels
        width1 = num_mels // 2 + 1
        width2 = width1 // 2 + 1
        rate = FrameRate(8, lead_frames=7 if pad_stages else 0)
        super().__init__(rate, [1, num_mels], [channels, 1, width1 + width2])
        self.width1, self.width2 = width1, width2
        self.conv1 = OneChannelConvolution(1, channels, 3, stride=2)
        self.conv2 = separable_convolution(channels)
        self.conv3 = separable_convolution(channels)
        self.out = nn.Linear(channels * (self.width2 // 2 + 1), dim)

    def forward(
        self, feats: Tensor, real: Tensor, past_feats: Tensor, past_hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One step.

        Args:
            feats: (B, T, F), T a multiple of 8.
            real: (B, T) bool, which of them are of samples.
            past_feats: (B, 1, F), the feature frame before.
            past_hidden: (B, S, 1, F1+F2), the frame before of the first and the second stage, whose
                widths are F1 = F/2 + 1 and F2 = F1/2 + 1, rounded down.

        Returns:
            (B, T/8, D), and the two new pasts.
        """
        past1, past2 = past_hidden.split([self.width1, self.width2], dim=3)
        x = torch.cat([past_feats, feats], dim=1)[:, None]  # (B, 1, 1+T, F)
        x = functional.relu_(self.conv1(functional.pad(x, (2, 1))))  # (B, S, T/2, F1)
        if self.rate.lead_frames > 0:
            x, real = inside(x, real)
        hidden1 = torch.cat([past1, x], dim=2)  # (B, S, 1+T/2, F1)
        x = functional.relu_(self.conv2(functional.pad(hidden1, (2, 1))))  # (B, S, T/4, F2)
        if self.rate.lead_frames > 0:
            x, _ = inside(x, real)
        hidden2 = torch.cat([past2, x], dim=2)  # (B, S, 1+T/4, F2)
        x = functional.relu_(self.conv3(functional.pad(hidden2, (2, 1))))  # (B, S, T/8, F3)
        x = self.out(x.transpose(1, 2).flatten(2))  # (B, T/8, D)
        new_hidden = torch.cat([hidden1[:, :, -1:], hidden2[:, :, -1:]], dim=3)
        return x, feats[:, -1:].clone(), new_hidden


def inside(x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """What a stage makes of a stream, with zeros where it is outside.

    Args:
        x: (B, S, T, F).
        real: (B, 2T), which frames before the stage are of the stream.

    Returns:
        x, zero but where one of its two frames is of the stream; and where that is, (B, T).
    """
    real = real[:, ::2] | real[:, 1::2]
    return x.masked_fill(~real[:, None, :, None], 0.0), real


def separable_convolution(channels: int) -> nn.Sequential:
    """A 3x3 convolution of stride 2 of each channel by itself, then one over channels."""
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, stride=2, groups=channels),
        nn.Conv2d(channels, channels, 1),
    )


def split_steps(
    feats: Tensor, frames: int, lookahead: int, ahead_frames: int | None = None
) -> Iterator[tuple[Tensor, int]]:
    """Yield the part of (B, T, F) that each step takes, and how many of its frames are real.

    A part begins `frames` after the one before. The last parts end after the stream, so that every
    frame that was only seen ahead is also returned.

    Args:
        feats: features of whole streams.
        frames: feature frames of whole chunks.
        lookahead: feature frames beyond its own that an encoder frame sees.
        ahead_frames: feature frames that a step takes beyond its chunks; `lookahead` if None.
    """
    ahead, total = lookahead if ahead_frames is None else ahead_frames, feats.size(1)
    feats = functional.pad(feats, (0, 0, 0, ahead - lookahead))
    for start in range(0, max(1, total - lookahead), frames):
        part = feats[:, start : start + frames + ahead]
        yield part, min(part.size(1), total - start)


KINDS: Kinds[Any] = Kinds(
    "subsampling",
    {
        "conv4": Conv4Subsampling,
        "conv8": Conv8Subsampling,
        "conv4_valid": Conv4ValidSubsampling,
        "conv6_valid": Conv6ValidSubsampling,
        "conv8_valid": Conv8ValidSubsampling,
    },
    ("num_mels", "dim"),
)


def build_subsampling(subsampling: str | Mapping[str, Any], num_mels: int, dim: int) -> Subsampling:
    """The subsampling of a kind, or of a kind with its options.

    Raises:
        ValueError: for a kind or an option that is not one, or numbers that do not fit.
    """
    cls, options = KINDS.chosen(subsampling)
    built: Subsampling = cls(num_mels, dim, **options)
    return built
