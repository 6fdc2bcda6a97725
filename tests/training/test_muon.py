"""Muon: orthogonal updates, and torch's own within the bfloat16 that it computes in."""

import pytest
import torch
from torch import nn

from asrkit.training.optimizer import Muon, orthogonalize


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 6, 24), (2, 24, 6)])
def test_singular_values_come_near_one_and_vectors_stay(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(shape, dtype=torch.float64)
    result = orthogonalize(matrices)
    values = torch.linalg.svdvals(result)
    assert float(values.min()) > 0.6
    assert float(values.max()) < 1.3
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    diagonal = left.mT @ result @ right.mT  # of the same singular vectors
    off = diagonal - torch.diag_embed(diagonal.diagonal(dim1=1, dim2=2))
    assert float(off.abs().max()) < 1e-9


@pytest.mark.parametrize(("m", "n"), [(16, 16), (12, 40), (40, 12)])
def test_it_is_torchs_muon(m: int, n: int) -> None:
    torch.manual_seed(0)
    ours, theirs = (nn.Parameter(torch.ones(m, n)) for _ in range(2))
    optimizers = [
        Muon([ours], weight_decay=0.1),
        torch.optim.Muon([theirs], weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    ]
    for optimizer in optimizers:
        optimizer.param_groups[0]["lr"] = 0.02
    for _ in range(3):
        gradient = torch.randn(m, n)
        for weight, optimizer in zip((ours, theirs), optimizers, strict=True):
            weight.grad = gradient.clone()
            optimizer.step()
    moved = float((theirs.detach() - 1.0).abs().max())
    assert float((ours - theirs).detach().abs().max()) < 0.05 * moved
