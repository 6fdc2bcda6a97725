"""Planning an epoch of a large corpus: python tools/studies/measure_planning.py --utterances 1e7

The tool makes an index of `--utterances` utterances without audio. It measures the work of each
rank before its first batch: opening the index, planning the epoch, beginning in the middle of it.
"""

import argparse
import hashlib
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asrkit.data.index import DESCRIPTION, LINES, ROW, ROWS, Description, opened_index
from asrkit.data.indexed_cuts import IndexedCuts
from asrkit.data.sampling import EpochBatches
from asrkit.data.storage import Folder, Stamp

LINE, AUDIO = 400, 200_000  # bytes of an utterance
IN_SHARD = 10_000  # utterances


class Cost(NamedTuple):
    """Costs of a rank."""

    opening: float  # seconds
    first_batch: float  # seconds, with planning
    resumed_batch: float  # seconds, of the batch in the middle
    memory: float  # bytes more than before, at most; the index is mapped, and shared
    hours: float
    batches: int


def write_synthetic(count: int, place: Path) -> None:
    """An index of utterances of 1 to 30 s, 12 s on average, in shards that are not there."""
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


def measure(place: Path, factors: tuple[float, ...]) -> Cost:
    """Measure what a rank spends on the index at `place` until it has a batch."""
    begun, before = time.monotonic(), most_memory()
    cuts = IndexedCuts(opened_index("synthetic", Folder("synthetic"), place), factors)
    opened = time.monotonic()
    batches = EpochBatches(cuts.durations, 300.0, 20, seed=0, epoch=0)
    next(iter(batches))
    planned = time.monotonic()
    count = batches.num_batches
    again = time.monotonic()
    next(iter(EpochBatches(cuts.durations, 300.0, 20, seed=0, epoch=0, start=count // 2)))
    resumed = time.monotonic() - again
    hours = cuts.durations.sum() / 3600
    return Cost(opened - begun, planned - opened, resumed, most_memory() - before, hours, count)


def most_memory() -> int:
    """Bytes that this process had at most, without those of the files that are mapped now (Linux).

    getrusage would give those of the process that started this one, if they were more.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines)
    most, mapped = (int(values[name].removesuffix("kB")) for name in ("VmHWM", "RssFile"))
    return 1024 * (most - mapped)


def measured(count: int, factors: tuple[float, ...]) -> Cost:
    """Measure the costs with this number of utterances, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        write_synthetic(count, Path(folder))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(measure, (Path(folder), factors))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--utterances", type=float, default=1e6)
    arguments.add_argument("--speeds", type=int, default=1, choices=[1, 3])
    options = arguments.parse_args()
    cost = measured(round(options.utterances), (0.9, 1.0, 1.1)[: options.speeds])
    print(
        f"{options.utterances:.0f} utterances at {options.speeds} speeds, {cost.hours:.0f} h, "
        f"{cost.batches} batches of 300 s\nopening the index {cost.opening:.1f} s, first batch "
        f"{cost.first_batch:.1f} s, batch in the middle {cost.resumed_batch:.1f} s, "
        f"{cost.memory / 1e6:.0f} MB of memory"
    )


if __name__ == "__main__":
    main()
