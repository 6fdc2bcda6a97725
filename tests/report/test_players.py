"""Audio inside the page."""

import base64
from pathlib import Path

import numpy as np
import pytest
import soundfile

from asrkit.report.players import data_url, players
from tests.conftest import speech


def test_recordings_are_whole_and_in_time(tmp_path: Path) -> None:
    """What is played is as long as the recording and not shifted."""
    samples = speech(2.0)
    (tmp_path / "x").write_bytes(base64.b64decode(data_url(samples).split(",")[1]))
    played, rate = soundfile.read(tmp_path / "x", dtype="float32")
    assert (len(played), rate) == (len(samples), 16000)
    middle = samples[1000:-1000]
    assert np.correlate(played, middle, "valid").argmax() == pytest.approx(1000, abs=2)


def test_a_full_page_leaves_audio_out() -> None:
    url = data_url(speech(1.0))
    assert [*players([speech(1.0)] * 2, len(url) + 10)] == [url, None]
    assert [*players([speech(1.0)], len(url) - 1)] == [None]
