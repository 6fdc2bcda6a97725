"""Planning an epoch of a large corpus: seconds, and less memory than its index has."""

import hashlib
import multiprocessing
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from asrkit.data.index import DESCRIPTION, LINES, ROW, ROWS, Description, opened_index
from asrkit.data.indexed_cuts import IndexedCuts
from asrkit.data.sampling import EpochBatches
from asrkit.data.storage import Folder, Stamp

LINE, AUDIO = 400, 200_000  # bytes of an utterance
IN_SHARD = 10_000  # utterances


class Cost(NamedTuple):
    """Costs of a rank before its first batch."""

    first_batch: float  # seconds, with opening the index and planning
    resumed_batch: float  # seconds, of the batch in the middle
    memory: float  # bytes more than before, at most; the index is mapped, and shared


def write_synthetic(count: int, place: Path) -> None:
    """Write an index of utterances of 1 to 30 s, 12 s on average, in shards that are not there."""
    numbers = np.arange(count)
    rows = np.zeros(count, ROW)
    rows["line"], rows["line_size"] = numbers * LINE, LINE
    rows["shard"], rows["size"] = numbers // IN_SHARD, AUDIO - 1024
    rows["offset"] = numbers % IN_SHARD * AUDIO + 512
    durations = np.random.default_rng(0).lognormal(2.35, 0.6, count)
    rows["duration"] = durations.clip(1.0, 30.0).round(2)
    rows["rate"], rows["text"] = 16000, 100
    rows.tofile(place / ROWS)
    with (place / LINES).open("wb") as lines:
        lines.truncate(count * LINE)  # which takes no space on a disk
    shards = [f"recording.{number:06d}.tar" for number in range(-(-count // IN_SHARD))]
    stamp = Stamp(IN_SHARD * AUDIO + 10240, "")
    description = Description(
        files=dict.fromkeys(shards, stamp), shards=shards, left_out=[], count=count,
        lines_size=count * LINE,
        rows_sha256=hashlib.sha256(rows.tobytes()).hexdigest(), lines_sha256="0" * 64,
    )  # fmt: skip
    (place / DESCRIPTION).write_text(description.model_dump_json())


def measure(place: Path) -> Cost:
    """Measure what a rank spends on the index at `place` until it has a batch."""
    begun, before = time.monotonic(), most_memory()
    cuts = IndexedCuts(opened_index("synthetic", Folder("synthetic"), place), (1.0,))
    batches = EpochBatches(cuts.durations, 300.0, 20, seed=0, epoch=0)
    next(iter(batches))
    planned, middle = time.monotonic(), batches.num_batches // 2
    next(iter(EpochBatches(cuts.durations, 300.0, 20, seed=0, epoch=0, start=middle)))
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


def test_a_batch_is_a_function_of_its_number() -> None:
    """Whatever is asked for before: resuming goes over none of the earlier batches."""
    durations = np.random.default_rng(0).uniform(1.0, 20.0, 5000)
    whole = list(EpochBatches(durations, 60.0, 20, 0, 3))
    for start in (0, 1, 500, len(whole) - 1):
        batches = iter(EpochBatches(durations, 60.0, 20, 0, 3, start))
        assert next(batches) == whole[start]
    assert sorted(place for _, places in whole for place in places) == list(range(5000))
