"""Planning an epoch of a large corpus: seconds, and less memory than its index has."""

import multiprocessing
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow
import pytest

from asrkit.data.recordings import Recordings
from asrkit.data.sampling import EpochBatches
from asrkit.data.shards import INDEX, ROWS, SCHEMA


class Cost(NamedTuple):
    """Costs of a rank before its first batch."""

    first_batch: float  # seconds, with opening the index and planning
    resumed_batch: float  # seconds, of the batch in the middle
    memory: float  # bytes more than before, at most; the index is mapped, and shared


def write_synthetic(count: int, folder: Path) -> None:
    """Write an index of utterances of 1 to 30 s, 12 s on average, in a shard that is not there."""
    durations = np.random.default_rng(0).lognormal(2.35, 0.6, count).clip(1.0, 30.0).round(2)
    values: dict[str, object] = {"id": "u" * 20, "audio": "000000.tar", "text": "yes no " * 15,
                                 "sample_rate": 16000, "num_channels": 1}  # fmt: skip
    with pyarrow.ipc.new_file(str(folder / INDEX), SCHEMA) as index:
        for part in np.split(durations, range(ROWS, count, ROWS)):
            columns = [
                pyarrow.repeat(pyarrow.scalar(values.get(field.name), field.type), len(part))
                for field in SCHEMA
            ]
            columns[SCHEMA.get_field_index("duration")] = pyarrow.array(part)
            index.write_table(pyarrow.table(columns, SCHEMA))


def measure(place: Path) -> Cost:
    """Measure what a rank spends on the index at `place` until it has a batch."""
    begun, before = time.monotonic(), most_memory()
    table = pyarrow.ipc.open_file(pyarrow.memory_map(str(place / INDEX))).read_all()
    recordings = Recordings(table, str(place))
    assert recordings.has_text.all()
    batches = EpochBatches(recordings.durations, 300.0, 20, seed=0, epoch=0)
    next(iter(batches))
    planned, middle = time.monotonic(), batches.num_batches // 2
    next(iter(EpochBatches(recordings.durations, 300.0, 20, seed=0, epoch=0, start=middle)))
    return Cost(planned - begun, time.monotonic() - planned, most_memory() - before)


def most_memory() -> int:
    """Return the bytes that this process had at most, without mapped files.

    getrusage would return those of the process that started this one, if they were more.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines)
    most, mapped = (int(values[name].removesuffix("kB")) for name in ("VmHWM", "RssFile"))
    return 1024 * (most - mapped)


@pytest.mark.parametrize(
    ("count", "seconds", "memory"),
    [(200_000, 15.0, 100e6), pytest.param(10_000_000, 60.0, 1e9, marks=pytest.mark.slow)],
)
def test_planning_is_cheap(count: int, seconds: float, memory: float, tmp_path: Path) -> None:
    """In a process of its own; 200 thousand take 0.5 s on a free core."""
    write_synthetic(count, tmp_path)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        cost = pool.apply(measure, (tmp_path,))
    assert cost.first_batch < seconds
    assert cost.resumed_batch < seconds
    assert cost.memory < memory
