"""Reader of the scalars that a training logged for TensorBoard."""

import logging
import math
from pathlib import Path
from typing import NamedTuple

LATEST = 253402300799.0  # the end of the year 9999: later times cannot be written as a date


class Scalar(NamedTuple):
    step: int
    value: float
    time: float  # seconds since 1970


def read_scalars(folder: Path) -> dict[str, list[Scalar]]:
    """Read each tag's values by step; for a step repeated after a resume, the last value."""
    if not folder.is_dir():
        return {}
    from tensorboard.backend.event_processing import (  # type: ignore[import-untyped]
        event_accumulator,
    )

    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    events = event_accumulator.EventAccumulator(
        str(folder), size_guidance={"scalars": 0}
    )  # 0: all of them
    events.Reload()
    found = {}
    for tag in events.Tags()["scalars"]:
        dated = (e for e in events.Scalars(tag) if 0.0 <= e.wall_time <= LATEST)
        steps = {e.step: Scalar(e.step, e.value, e.wall_time) for e in dated}
        if steps:
            found[tag] = [steps[step] for step in sorted(steps)]
    return found


class Point(NamedTuple):
    """The summary of some neighbouring steps."""

    step: float
    value: float  # mean
    low: float
    high: float


def thinned(scalars: list[Scalar], limit: int = 120) -> list[Point]:
    """Reduce scalars to at most `limit` points, without values that are not finite."""
    finite = [scalar for scalar in scalars if math.isfinite(scalar.value)]
    width = max(1, math.ceil(len(finite) / limit))
    points = []
    for start in range(0, len(finite), width):
        part = finite[start : start + width]
        values = [scalar.value for scalar in part]
        middle = part[0].step if width == 1 else (part[0].step + part[-1].step) / 2
        points.append(Point(middle, sum(values) / len(values), min(values), max(values)))
    return points
