"""The figure of delays: its points, and the time to the final text."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from asrkit.runtime import Segment, Word
from tools.delay_figure import FRAME_MS, Point, draw, time_to_final


def test_the_plot_has_a_point_for_each_context(tmp_path: Path) -> None:
    live = [Point("640", 0, 266.0, 5.5), Point("160", 0, 54.0, 7.8), Point("640", 160, 397.0, 4.7)]
    final = [Point("640", 0, 973.0, 5.5), Point("640", 0, 973.0, 3.8, 2),
             Point("640", 160, 1100.0, 4.7), Point("640", 160, 1100.0, 3.8, 2)]  # fmt: skip
    draw(tmp_path / "delay.svg", [*live, Point("full", 0, 1500.0, 3.8)], final)
    root = ElementTree.parse(tmp_path / "delay.svg").getroot()
    points = [each for each in root.iter() if each.get("width") == "8.0"]
    assert len(points) == len(live) + len(final)
    heights = [float(each.get("y", 0)) for each in points]
    assert heights[1] < heights[0] == heights[3] < heights[2] < heights[4] == heights[6]
    places = [float(each.get("x", 0)) for each in points]
    assert places[1] < places[0] < places[2] < places[3] == places[4] < places[5] == places[6]


@pytest.mark.parametrize("ends", [[1.0], [0.4, 1.0], []])
def test_time_to_final(ends: list[float]) -> None:
    """A segment is final 0.5 s after the end of its word."""
    segments = [Segment("a", (Word("a", end - 0.1, end, 1.0),), 0.0, end) for end in ends]
    shown = [(segment, segment.end + 0.5) for segment in segments]
    shown.append((Segment("", (), 1.5, 2.0), 2.0))
    received = 0

    def accept(samples: np.ndarray) -> Any:
        nonlocal received
        received += len(samples)
        return SimpleNamespace(segments=tuple(each for each, at in shown if received / 16000 >= at))

    recognizer: Any = SimpleNamespace(start=lambda: SimpleNamespace(accept=accept))
    found = time_to_final(recognizer, np.zeros(16000, np.float32))
    assert found == (pytest.approx(500.0) if ends else None)


def test_frames_are_those_of_the_package_model() -> None:
    from asrkit.model_file import load_model

    assert load_model("small-en-alnum").model.encoder.rate.frame_ms == FRAME_MS
