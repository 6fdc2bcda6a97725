"""Causal convolutional subsampling: four feature frames become one encoder frame."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class ConvSubsampling(nn.Module):
    """Two 3x3 convolutions of stride 2, causal in time, then a linear layer.

    Each convolution has one frame of past, so encoder frame e sees the feature frames up to
    4e+3 and none after.

    Args:
        num_mels: F, a multiple of 4.
        channels: S.
        dim: D.
        separable: the second convolution is one of each channel by itself, then one over channels
            (Howard et al. 2017, MobileNets): S·(9 + S) products in place of 9·S².
    """

    def __init__(self, num_mels: int, channels: int, dim: int, separable: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, stride=2, padding=(0, 1))
        groups = channels if separable else 1
        conv2 = nn.Conv2d(channels, channels, 3, stride=2, padding=(0, 1), groups=groups)
        self.conv2 = nn.Sequential(conv2, nn.Conv2d(channels, channels, 1)) if separable else conv2
        self.out = nn.Linear(channels * num_mels // 4, dim)

    def forward(
        self, feats: Tensor, past_feats: Tensor, past_hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One step.

        Args:
            feats: (B, T, F), T a multiple of 4.
            past_feats: (B, 1, F), the feature frame before.
            past_hidden: (B, S, 1, F/2), the frame of the first convolution before.

        Returns:
            (B, T/4, D), and the two new pasts.
        """
        x = torch.cat([past_feats, feats], dim=1)  # (B, 1+T, F)
        hidden = functional.relu_(self.conv1(x[:, None]))  # (B, S, T/2, F/2)
        hidden = torch.cat([past_hidden, hidden], dim=2)  # (B, S, 1+T/2, F/2)
        x = functional.relu_(self.conv2(hidden))  # (B, S, T/4, F/4)
        x = self.out(x.transpose(1, 2).flatten(2))  # (B, T/4, D)
        # Clones: a view would keep the whole step in memory as long as the stream waits.
        return x, feats[:, -1:].clone(), hidden[:, :, -1:].clone()
