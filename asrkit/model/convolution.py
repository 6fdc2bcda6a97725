"""The Conformer's convolution module, causal, with its past in and out."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.model import cpu_gradients
from asrkit.model.chunks import joined_windows, split_ahead
from asrkit.model.dropout import Dropout
from asrkit.registry import refusal


class Affine(nn.Module):
    """A scale and a bias of each channel: (…, D) -> (…, D).

    What a BatchNorm is after training, with its running statistics.

    Args:
        dim: D.
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

    The norm is no BatchNorm: statistics over time or batch would let padding and neighbours into a
    stream.

    Args:
        dim: D.
        kernel_size: K frames, the present one and K-1 before it.
        dropout: of the output.
        norm: one of NORMS.
        padding: one of PADDINGS: before which layer zeros stand for the frames before a stream. If
            before the pointwise layer, as in WeNet, its bias is in the past of the depthwise one.

    Raises:
        ValueError: for an unknown norm or padding.
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
        self.past_size = kernel_size - 1

    def init_state(self, batch_size: int, like: Tensor) -> Tensor:
        """Return the past of streams that have not begun: (B, D, K-1)."""
        return like.new_zeros([batch_size, self.depthwise.in_channels, self.past_size])

    def forward(
        self, x: Tensor, past: Tensor, num_blocks: int = 1, ahead: int = 0
    ) -> tuple[Tensor, Tensor]:
        """One step.

        Args:
            x: (B, T, D), T = n·(C+R), see `blocks`.
            past: (B, D, K-1).
            num_blocks: n; it does not matter with R = 0.
            ahead: R.

        Returns:
            (B, T, D), and the new past.
        """
        x, bias = functional.glu(self.expand(self.norm(x)), dim=2), self.depthwise.bias  # (B, T, D)
        if self.pads_pointwise:
            # Less what stands before a stream, so that its past is zeros in every case.
            before = functional.glu(self.expand.bias, dim=0)  # (D,)
            x = x - before
            assert bias is not None
            bias = bias + self.depthwise.weight.sum(dim=[1, 2]) * before
        own, seen = split_ahead(x.transpose(1, 2).unsqueeze(3), num_blocks, ahead)
        history = torch.cat([past, own.squeeze(3)], dim=2)  # (B, D, K-1+n·C)
        # As an image of a row for each block: ONNX Runtime has a fast depthwise convolution for
        # images alone.
        image = history[:, :, None]
        if seen is not None:
            block = x.size(1) // num_blocks
            window = past.size(2) + block
            image = joined_windows(history.unsqueeze(3), seen, block, window).squeeze(4)
        convolved = self.convolve(image, self.depthwise.weight[:, :, None], bias)
        x = convolved.flatten(2).transpose(1, 2)  # (B, T, D)
        x = self.project(functional.silu(self.depthwise_norm(x)))
        return self.dropout(x), history[:, :, history.size(2) - past.size(2) :]

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """(B, D, n, K-1+C), (D, 1, 1, K), (D,) -> (B, D, n, C)."""
        if not torch.jit.is_scripting():  # noqa: SIM102, or TorchScript would compile it
            if cpu_gradients.serves(x, weight):
                return cpu_gradients.Depthwise.apply(x, weight, bias)
        return functional.conv2d(x, weight, bias, groups=self.depthwise.groups)
