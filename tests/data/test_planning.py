"""Planning an epoch of a large corpus: seconds, and less memory than its index has."""

import numpy as np
import pytest

from asrkit.data.sampling import EpochBatches
from tools.studies.measure_planning import measured


def test_planning_is_cheap() -> None:
    cost = measured(200_000, (1.0,))
    assert cost.opening + cost.first_batch < 15.0  # 0.5 s on a free core
    assert cost.resumed_batch < 15.0
    assert cost.memory < 100e6


@pytest.mark.slow
def test_planning_of_ten_million() -> None:
    cost = measured(10_000_000, (1.0,))
    assert cost.opening + cost.first_batch < 60.0
    assert cost.resumed_batch < 60.0
    assert cost.memory < 1e9


def test_a_batch_is_a_function_of_its_number() -> None:
    """Whatever is asked for before: resuming goes over none of the earlier batches."""
    durations = np.random.default_rng(0).uniform(1.0, 20.0, 5000)
    whole = list(EpochBatches(durations, 60.0, 20, 0, 3))
    for start in (0, 1, 500, len(whole) - 1):
        batches = iter(EpochBatches(durations, 60.0, 20, 0, 3, start))
        assert next(batches) == whole[start]
    assert sorted(place for _, places in whole for place in places) == list(range(5000))
