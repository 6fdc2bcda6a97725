"""Axes, ticks, thinned curves and pictures, with known answers."""

import base64
import math
from pathlib import Path

import numpy as np
import pytest
import soundfile

from asrkit.report.charts import Axis, line_chart, log_ticks, ticks
from asrkit.report.players import Players, data_url
from asrkit.report.posteriorgram import Example, likely, picture
from asrkit.report.tensorboard import Point, Scalar, read_scalars, thinned
from asrkit.runtime import Word
from tests.conftest import speech
from tests.report.pages import Page


def test_ticks() -> None:
    assert ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert ticks(0, 8317) == [0, 2000, 4000, 6000, 8000]
    assert ticks(0, 0.0021) == pytest.approx([0, 0.0005, 0.001, 0.0015, 0.002])
    assert log_ticks(0.9, 11) == [1, 2, 5, 10]
    assert log_ticks(0.004, 2000) == pytest.approx([0.01, 0.1, 1, 10, 100, 1000])


def test_axis() -> None:
    assert Axis(0, 10, 50, 150)(2.5) == 75
    assert Axis(1, 100, 200, 0, log=True)(10) == pytest.approx(100)


def test_thinned() -> None:
    line = [Scalar(step, float(step), 0.0) for step in range(1, 11)]
    assert thinned(line, 5)[0] == Point(1.5, 1.5, 1.0, 2.0)
    assert len(thinned(line, 5)) == 5
    assert thinned(line, 100)[3] == Point(4, 4.0, 4.0, 4.0)
    lost = [*line, Scalar(11, math.nan, 0.0), Scalar(12, math.inf, 0.0)]
    assert thinned(lost, 100) == thinned(line, 100)


def test_lines_are_where_their_values_are() -> None:
    points = [Point(0, 0.0, 0.0, 0.0), Point(10, 4.0, 4.0, 4.0)]
    drawn = line_chart({"a<b": points}, "y", lambda point: f"{point.value:g}!", dots=True)
    found = Page.of(drawn)
    assert found.open == []
    assert found.tags.count("circle") == 2
    assert "a<b: 4!" in found.text
    (path,) = (value for key, value in found.attributes if key == "d" and value)
    (x0, y0), (x1, y1) = (map(float, part.split()) for part in path[1:].split("L"))
    assert x0 < x1
    assert y0 > y1


def test_charts_of_little() -> None:
    nothing = line_chart({"loss": []}, "loss", str)
    assert "No value" in nothing
    assert "No value" in line_chart({"loss": [Point(1, 0.0, 0.0, 0.0)]}, "loss", str, log=True)
    for value in (0.0, 1.0, 1e-9, 1e9):
        one = {"loss": [Point(1, value, value, value)]}
        assert "nan" not in line_chart(one, "loss", str)
        assert "nan" not in line_chart(one, "loss", str, log=True)


def test_events_of_a_resumed_training(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    assert read_scalars(tmp_path / "none") == {}
    for values in ((1.0, 2.0, 3.0), (9.0,)):  # the last step is done again
        writer = SummaryWriter(str(tmp_path / "t"), filename_suffix=f".{len(values)}")
        for step, value in enumerate(values, start=4 - len(values)):
            writer.add_scalar("loss", value, step)
        writer.close()
    assert [s[:2] for s in read_scalars(tmp_path / "t")["loss"]] == [(1, 1.0), (2, 2.0), (3, 9.0)]


@pytest.mark.parametrize("time", [1e300, math.nan, -1e300])
def test_values_of_no_time_are_left_out(time: float, tmp_path: Path) -> None:
    """They cannot be written as a date."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for tag, step, when in (("loss", 1, 1e9), ("loss", 2, time), ("cer", 1, time)):
            writer.add_scalar(tag, 0.5, step, walltime=when)
    assert read_scalars(tmp_path) == {"loss": [Scalar(1, 0.5, 1e9)]}


def test_likely_tokens_come_in_their_order() -> None:
    posteriors = np.zeros((6, 5))
    posteriors[:, 0] = 0.9
    posteriors[4, 1], posteriors[1, 3], posteriors[2, 2], posteriors[3, 2] = 0.8, 0.7, 0.05, 0.3
    assert likely(posteriors) == [3, 2, 1]
    assert likely(posteriors[:0]) == []


def test_picture() -> None:
    posteriors = np.full((25, 3), 0.01)
    posteriors[5, 1], posteriors[9, 2] = 0.9, 0.04
    word = Word("<b>", 0.2, 0.24, 0.9)
    example = Example(1.0, speech(1.0), posteriors, ["", "<", "z"], 0.04, 0.64, (word, word), ())
    found = Page.of(picture(example))
    assert found.open == []
    assert found.text.count("<b>: 0.20 to 0.24 s, confidence 0.90") == 2
    assert "< 0.90 at 0.20 s" in found.text
    assert "z" not in found.text.replace("Posteriors", "")
    assert found.attributes.count(("class", "chunk")) == 1
    shorter = example._replace(
        seconds=0.0, samples=speech(0.0), posteriors=posteriors[:0], hypothesis=()
    )
    assert Page.of(picture(shorter)).open == []


def test_recordings_are_whole_and_in_time(tmp_path: Path) -> None:
    """What is played is as long as the recording and not shifted: the pictures depend on it."""
    samples = speech(2.0)
    (tmp_path / "x").write_bytes(base64.b64decode(data_url(samples).split(",")[1]))
    played, rate = soundfile.read(tmp_path / "x", dtype="float32")
    assert (len(played), rate) == (len(samples), 16000)
    middle = samples[1000:-1000]
    assert np.correlate(played, middle, "valid").argmax() == pytest.approx(1000, abs=2)


def test_a_full_page_leaves_audio_out_and_says_so() -> None:
    size = len(data_url(speech(1.0)))
    play = Players(size + 10)
    assert play(speech(1.0)).startswith("<audio")
    assert "Audio left out" in play(speech(1.0))
    assert Players(size - 1)(speech(1.0)).startswith("<p")
