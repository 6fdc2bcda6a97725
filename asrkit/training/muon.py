"""The optimiser Muon in float32: steps along the semi-orthogonal matrix nearest to the momentum.

torch.optim.Muon orthogonalises in bfloat16, one matrix at a time. On a CPU without bfloat16
instructions this took seven times as long as the rest of a training step.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

# Coefficients of the quintic that drives singular values to about 1 (Jordan et al. 2024).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum (Jordan et al. 2024), for matrices.

    Updates are scaled to a root mean square of 0.2, like AdamW's, so that both can have the same
    learning rate (Liu et al. 2025).

    Args:
        weight_decay: decoupled weight decay, multiplied by the learning rate.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        weight_decay: float,
        momentum: float = 0.95,
    ) -> None:
        defaults = {"lr": 1e-3, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[nn.Parameter]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    by_shape.setdefault(tuple(weight.shape), []).append(weight)
            for weights in by_shape.values():
                self._update(weights, group)

    def _update(self, weights: list[nn.Parameter], group: dict[str, Any]) -> None:
        """Update weights of one shape."""
        momenta = torch.stack([self._momentum(w, group["momentum"]) for w in weights])
        scale = 0.2 * max(momenta.shape[1:]) ** 0.5
        for weight, update in zip(weights, orthogonalize(momenta), strict=True):
            weight.mul_(1.0 - group["lr"] * group["weight_decay"])
            weight.sub_(update, alpha=group["lr"] * scale)

    def _momentum(self, weight: nn.Parameter, momentum: float) -> Tensor:
        gradient, state = weight.grad, self.state[weight]
        assert gradient is not None
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weight)
        state["momentum"].lerp_(gradient, 1.0 - momentum)
        return gradient.lerp(state["momentum"], momentum)


def orthogonalize(matrices: Tensor) -> Tensor:
    """Set the singular values of (N, m, n) matrices to about 1; keep the singular vectors.

    The method is the Newton-Schulz iteration X <- (aI + bXX' + c(XX')²)X. Only XX', which is small
    and square, is iterated; X is multiplied once, by the product of all factors.
    """
    if matrices.size(1) > matrices.size(2):
        return orthogonalize(matrices.mT).mT
    matrices = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    square = matrices @ matrices.mT  # (N, m, m)
    product = factor = factor_of(square)
    for _ in range(STEPS - 1):
        square = factor @ square @ factor
        factor = factor_of(square)
        product = factor @ product
    return product @ matrices


def factor_of(square: Tensor) -> Tensor:
    """Return aI + bA + cA² for A = XX', (N, m, m)."""
    a, b, c = COEFFICIENTS
    factor = torch.baddbmm(square, square, square, beta=b, alpha=c)
    factor.diagonal(dim1=1, dim2=2).add_(a)
    return factor
