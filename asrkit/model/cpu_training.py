"""Dropout and convolutions that train faster on a CPU than torch's own.

The forward pass of the convolutions is torch's, bit for bit. tools/README.md has the speed-ups.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.grad import conv2d_input


class Dropout(nn.Dropout):
    """Dropout (Srivastava et al. 2014). On a CPU, one 64-bit random word decides four elements.

    torch draws a Bernoulli number for each element, which takes longer. The probability is rounded
    to 1/65536.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:  # also what the function returns, which has a cost in each chunk
            return x
        if not torch.jit.is_scripting():  # noqa: SIM102, or TorchScript would compile it
            if 0.0 < self.p < 1.0 and x.device.type == "cpu":
                return x * factors(x, self.p)
        return functional.dropout(x, self.p, self.training)


def factors(x: Tensor, chance: float) -> Tensor:
    """Return 0 with probability `chance`, else 1 / (1 - chance), for each element of x."""
    words = torch.empty([(x.numel() + 3) // 4], dtype=torch.int64).random_(-(1 << 63), None)
    draws = words.view(torch.int16)[: x.numel()].view(x.shape)  # uniform from -32768 to 32767
    kept = (draws >= min(round(chance * 65536), 65535) - 32768).to(x.dtype)
    return kept.div_(1.0 - chance)


def serves(x: Tensor, weight: Tensor) -> bool:
    """Return whether a gradient of this weight will be computed on a CPU."""
    wanted = torch.is_grad_enabled() and weight.requires_grad
    return wanted and x.device.type == "cpu" and not torch.compiler.is_compiling()


class Depthwise(torch.autograd.Function):
    """(B, D, 1, K-1+T), (D, 1, 1, K), (D,) -> (B, D, 1, T): each channel with its own kernel.

    The gradient of the kernels is a depthwise convolution too: the input of each row and channel,
    with the gradient of its output as the kernel.
    """

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return functional.conv2d(x, weight, bias, groups=len(weight))

    @staticmethod
    @once_differentiable
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(  # type: ignore[override]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        past = weight.size(3) - 1
        padded = functional.pad(grad, (past, past))
        dx = functional.conv2d(padded, weight.flip(3), groups=len(weight))  # (B, D, 1, K-1+T)
        rows, kernels = x.flatten(0, 1)[None], grad.flatten(0, 1)[:, None]  # (1, B·D, 1, K-1+T)
        by_row = functional.conv2d(rows, kernels, groups=len(kernels))  # (1, B·D, 1, K)
        return dx, by_row.view(len(x), *weight.shape).sum(dim=0), grad.sum(dim=(0, 2, 3))


class OneChannel(torch.autograd.Function):
    """(B, 1, T, F), (S, 1, k, k), (S,) -> (B, S, T', F'): a convolution of one channel.

    The weight gradient is one matrix product over patches, of which one channel has few.
    """

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, stride: Any, padding: Any
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return functional.conv2d(x, weight, bias, stride, padding)

    @staticmethod
    @once_differentiable
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(  # type: ignore[override]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        dx = None
        if ctx.needs_input_grad[0]:
            dx = conv2d_input(x.shape, weight, grad, ctx.stride, ctx.padding)
        patches = functional.unfold(x, weight.shape[2:], 1, ctx.padding, ctx.stride)  # (B, k·k, L)
        products = grad.flatten(2) @ patches.to(grad.dtype).mT  # (B, S, k·k)
        return dx, products.sum(dim=0).view_as(weight), grad.sum(dim=(0, 2, 3)), None, None
