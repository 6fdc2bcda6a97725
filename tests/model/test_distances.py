"""From distances to keys and back."""

import pytest
import torch

from asrkit.model.positions.distances import frequencies, shift, waves
from asrkit.model.positions.shaw import unshift


@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (1, 4), (3, 3), (3, 7)])
def test_shift_is_a_gather(rows: int, keys: int) -> None:
    scores = torch.randn(2, rows, keys + rows)
    shifted = shift(scores, keys)
    for i in range(rows):
        for j in range(keys):
            assert torch.equal(shifted[:, i, j], scores[:, i, j + rows - 1 - i])


def test_unshift_is_the_way_back() -> None:
    weights = torch.randn(2, 3, 7)
    by_distance = unshift(weights)
    assert torch.equal(shift(by_distance, 7), weights)
    assert by_distance.count_nonzero() == weights.count_nonzero()  # and nothing is added


def test_the_sine_keeps_the_sign() -> None:
    ahead, behind = waves(torch.tensor([3, -3]), frequencies(8, torch.device("cpu")))
    assert torch.equal(ahead[0::2], -behind[0::2])
    assert torch.equal(ahead[1::2], behind[1::2])
    assert not torch.equal(ahead, behind)
