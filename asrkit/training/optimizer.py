"""The optimisers and the learning rate schedule."""

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from asrkit.errors import UserError, shown

# Coefficients of the quintic that drives singular values to about 1 (Jordan et al. 2024).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
MOMENTUM = 0.95


def build_optimizers(
    model: nn.Module, kind: str, weight_decay: float, factors: Mapping[str, float]
) -> list[torch.optim.Optimizer]:
    """Build the optimisers of a model's parameters, which step together.

    Frozen parameters have no optimiser.

    "adamw" is AdamW (Loshchilov and Hutter 2019) for all parameters. "muon" is Muon (Jordan et al.
    2024) for the linear layers' matrices and AdamW for the rest. Weight decay does not apply to
    biases, norms and other vectors.

    Args:
        factors: factors of the learning rate of parts of the network, by name; 1 for the rest. The
            longest name of a parameter's parts decides.

    Raises:
        UserError: if the network has no such part.
    """
    factor_of = dict.fromkeys(model.parameters(), 1.0)
    for part in sorted(factors, key=len):
        parameters = parameters_of(model, part, "training.rate_factors")
        factor_of |= dict.fromkeys(parameters, factors[part])

    def groups(parameters: list[nn.Parameter], decay: float) -> list[dict[str, Any]]:
        """Return a parameter group for each factor."""
        return [
            {
                "params": [p for p in parameters if factor_of[p] == factor],
                "weight_decay": decay,
                "factor": factor,
            }
            for factor in sorted({factor_of[p] for p in parameters})
        ]

    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [p for name, p in named if p.dim() >= 2 and not name.endswith("bias")]
    vectors = [p for name, p in named if p.dim() < 2 or name.endswith("bias")]
    optimizers: list[torch.optim.Optimizer] = []
    if kind == "muon":
        # A head's rows are labels, not directions: use AdamW, as for embeddings.
        of_head = {id(p) for name, p in named if name.startswith("head.")}
        linear = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
        chosen = {id(w) for w in linear} - of_head
        muon = [p for p in matrices if id(p) in chosen]
        matrices = [p for p in matrices if id(p) not in chosen]
        if muon:
            optimizers.append(Muon(groups(muon, weight_decay), weight_decay))
    rest = groups(matrices, weight_decay) + groups(vectors, 0.0)
    return [*optimizers, torch.optim.AdamW(rest, betas=(0.9, 0.98), eps=1e-8, fused=True)]


def parameters_of(model: nn.Module, part: str, setting: str) -> list[nn.Parameter]:
    """Return the parameters whose names are `part`, or begin with `part` and a dot.

    Args:
        setting: key of the configuration that names the part, for the error.

    Raises:
        UserError: if the network has no such part.
    """
    named = model.named_parameters()
    parameters = [p for name, p in named if f"{name}.".startswith(f"{part}.")]
    if not parameters:
        names = [name for name, _ in model.named_modules() if name]
        nearest = ", ".join(difflib.get_close_matches(part, names, cutoff=0.0))
        raise UserError(f"{setting}: the network has no {shown(part)}; nearest: {nearest}")
    return parameters


def set_learning_rate(optimizers: Sequence[torch.optim.Optimizer], rate: float) -> None:
    """Set the learning rate of each parameter group: `rate` times its factor."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate * group["factor"]


def learning_rate(progress: float, peak: float, warmup_share: float) -> float:
    """Return the learning rate: linear warm-up, then a cosine from the peak to 1 % of the peak.

    Args:
        progress: share of all training done, 0 to 1.
        warmup_share: share of all training for the warm-up.
    """
    if progress < warmup_share:
        return peak * max(progress, 1e-4) / warmup_share
    rest = min(1.0, (progress - warmup_share) / max(1e-9, 1.0 - warmup_share))
    return peak * (0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * rest)))


def ramp(progress: float, share: float) -> float:
    """Return a factor that rises linearly from 0 to 1 over the first `share` of training."""
    return min(1.0, progress / max(1e-9, share))


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum (Jordan et al. 2024) in float32, for matrices.

    Steps go along the semi-orthogonal matrix nearest to the momentum. torch.optim.Muon
    orthogonalises in bfloat16, one matrix at a time, which is slow on a CPU without bfloat16.

    Updates are scaled to a root mean square of 0.2, like AdamW's, so that both can have the same
    learning rate (Liu et al. 2025).

    Args:
        weight_decay: decoupled weight decay, multiplied by the learning rate.
    """

    def __init__(
        self, params: Iterable[nn.Parameter] | Iterable[dict[str, Any]], weight_decay: float
    ) -> None:
        super().__init__(params, {"lr": 1e-3, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[nn.Parameter]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    by_shape.setdefault(tuple(weight.shape), []).append(weight)
            for weights in by_shape.values():
                updates = orthogonalize(torch.stack([self._momentum(w) for w in weights]))
                scale = 0.2 * max(updates.shape[1:]) ** 0.5
                for weight, update in zip(weights, updates, strict=True):
                    weight.mul_(1.0 - group["lr"] * group["weight_decay"])
                    weight.sub_(update, alpha=group["lr"] * scale)

    def _momentum(self, weight: nn.Parameter) -> Tensor:
        gradient, state = weight.grad, self.state[weight]
        assert gradient is not None
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weight)
        state["momentum"].lerp_(gradient, 1.0 - MOMENTUM)
        return gradient.lerp(state["momentum"], MOMENTUM)


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
