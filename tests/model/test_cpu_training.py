"""Dropout is torch's, but for which elements it drops."""

import pytest
import torch

from asrkit.model import cpu_training


@pytest.mark.parametrize("chance", [0.001, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_share_and_scale(chance: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.ones(301, 1003, dtype=dtype)  # no multiple of four
    dropped = cpu_training.Dropout(chance)(x)
    kept = dropped != 0
    spread = (chance * (1 - chance) / x.numel()) ** 0.5
    assert abs(float((~kept).double().mean()) - chance) < 4 * spread + 1 / 65536
    assert torch.equal(dropped[kept], (x / (1 - chance))[kept])


def test_elements_are_dropped_apart() -> None:
    """Neighbours, which share a word of the generator, and rows and columns say nothing of each
    other: of pairs as many are dropped as of any two independent ones."""
    torch.manual_seed(0)
    dropped = (cpu_training.Dropout(0.3)(torch.ones(1000, 1000)) == 0).double()
    for shift in (1, 2, 3, 4, 1000, 1003):
        both = (dropped.flatten()[shift:] * dropped.flatten()[:-shift]).mean()
        assert abs(float(both) - 0.09) < 0.0015
    assert float(dropped.mean(0).std()) < 0.02
    assert float(dropped.mean(1).std()) < 0.02


def test_gradient() -> None:
    x = torch.randn(50, 7, dtype=torch.float64, requires_grad=True)
    dropped = cpu_training.Dropout(0.3)(x)
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    torch.testing.assert_close(gradient, (dropped / x).detach())


def test_nothing_happens_outside_of_training() -> None:
    x = torch.randn(5, 7)
    assert torch.equal(cpu_training.Dropout(0.3).eval()(x), x)
    assert torch.equal(cpu_training.Dropout(0.0)(x), x)
    assert not cpu_training.Dropout(1.0)(x).any()
    assert not cpu_training.Dropout(0.9999999)(x).any()
    assert torch.equal(torch.jit.script(cpu_training.Dropout(0.3).eval())(x), x)
