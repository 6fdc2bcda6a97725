"""Gradients of our own are torch's; dropout is, but for which elements it drops."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from asrkit.model import FULL, CTCHead, Network, cpu_training
from asrkit.training.loss import Loss, View
from tests.conftest import tiny_encoder

Convolution = Callable[[Tensor, Tensor, Tensor], Tensor]

# Name, shapes of input and weight, torch's convolution and ours.
CASES: list[tuple[str, list[int], list[int], Convolution, Convolution]] = [
    (
        "depthwise", [3, 6, 1, 20], [6, 1, 1, 5],
        lambda x, w, b: functional.conv2d(x, w, b, groups=6),
        cpu_training.Depthwise.apply,
    ),
]  # fmt: skip
for stride, padding in [((2, 2), (0, 1)), ((2, 2), (0, 0)), ((3, 3), (0, 0))]:
    CASES.append((
        f"one channel {stride} {padding}", [3, 1, 23, 18], [6, 1, 3, 3],
        lambda x, w, b, s=stride, p=padding: functional.conv2d(x, w, b, s, p),
        lambda x, w, b, s=stride, p=padding: cpu_training.OneChannel.apply(x, w, b, s, p),
    ))  # fmt: skip


def with_gradients(convolve: Convolution, x: list[int], weight: list[int]) -> list[Tensor]:
    torch.manual_seed(0)
    given = [torch.randn(size, dtype=torch.float64) for size in (x, weight, weight[:1])]
    given = [each.requires_grad_() for each in given]
    y = convolve(*given)
    return [y, *torch.autograd.grad((y * torch.randn_like(y)).sum(), given)]


@pytest.mark.parametrize(("x", "weight", "theirs", "ours"), [case[1:] for case in CASES])
def test_gradients_are_torchs(
    x: list[int], weight: list[int], theirs: Convolution, ours: Convolution
) -> None:
    expected, found = with_gradients(theirs, x, weight), with_gradients(ours, x, weight)
    assert torch.equal(expected[0], found[0])
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_kernel_that_is_not_turned_round_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "flip", lambda self, dim: self)
    with pytest.raises(AssertionError):
        test_gradients_are_torchs(*CASES[0][1:])


@pytest.mark.parametrize("bfloat16", [False, True])
def test_a_training_step_uses_them(bfloat16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also under autocast, where the numbers are as near as bfloat16's."""
    calls = []
    for kind in (cpu_training.Depthwise, cpu_training.OneChannel):
        apply = kind.apply
        monkeypatch.setattr(kind, "apply", lambda *given, to=apply: calls.append(to) or to(*given))
    encoder = tiny_encoder()
    model = Network(encoder, CTCHead(encoder.dim, 5)).to(torch.float32)

    def step() -> list[Tensor]:
        torch.manual_seed(1)
        feats, lengths = torch.randn(2, 64, encoder.num_mels), torch.tensor([64, 50])
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            loss = Loss(model, [], 0.0)(
                [View(feats, FULL)], lengths, torch.ones(2, 3), torch.tensor([3, 2])
            )
        return list(torch.autograd.grad(loss.sum(), list(model.parameters()), allow_unused=True))

    found = step()
    assert len(calls) == 1 + len(encoder.layers)
    monkeypatch.setattr(cpu_training, "serves", lambda x, weight: False)
    bound = 3e-2 if bfloat16 else 1e-5
    for one, other in zip(step(), found, strict=True):
        if one is not None and other is not None:
            assert one.dtype == other.dtype
            assert float((one - other).norm()) <= bound * float(one.norm()) + 1e-6
    assert len(calls) == 1 + len(encoder.layers)


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
