"""What the data doctor measures of a recording, whatever its format and its damage."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asrkit.audio import AudioError
from asrkit.data.checks import Facts
from asrkit.data.checks.measure import inspect, measure
from asrkit.data.recording import Recording
from asrkit.data.recordings import load
from tests.conftest import speech, write_wav
from tests.data.checks.test_check import found


def inspected(path: Path, **keys: Any) -> Facts:
    return inspect(Facts("m", 1, Recording(id="u", audio=str(path), text="no", **keys)))


def test_signal(tmp_path: Path) -> None:
    time = np.arange(16000) / 16000
    sine = 0.5 * np.sin(2 * np.pi * 100 * time)
    signal = inspected(write_wav(tmp_path / "a.wav", sine + 0.1)).signal
    assert signal is not None
    assert signal[:3] == pytest.approx((1.0, 0.5 / 2**0.5, 0.0), abs=1e-4)
    loud = inspected(write_wav(tmp_path / "b.wav", np.clip(4 * sine, -1, 1))).signal
    assert loud is not None
    assert 0.6 < loud.clipped < 0.7  # |2 sin| > 1 two thirds of the time


def test_samples_that_training_refuses(tmp_path: Path) -> None:
    broken = speech(1.0)
    broken[3] = 100  # 40 dB above full scale are allowed
    broken[7:10] = np.nan, np.inf, -101
    facts = inspected(write_wav(tmp_path / "c.wav", broken, subtype="FLOAT"))
    assert "sample 7 is nan; divide values in the range of int16" in str(facts.problem)
    assert found([facts], "unreadable")
    with pytest.raises(AudioError, match="sample 7 is nan"):
        load(facts.utterance.measured())


def test_signal_does_not_depend_on_blocks_or_the_file_format(tmp_path: Path) -> None:
    samples = speech(2.0)[:, None].repeat(2, axis=1)
    whole = measure([samples], 16000)
    pieces = measure([samples[:999], samples[999:1000], samples[1000:]], 16000)
    assert whole is not None
    assert pieces is not None
    assert whole.digest == pieces.digest
    assert whole[:3] == pytest.approx(pieces[:3])
    assert measure([], 16000) is None
    wav, flac = (
        inspected(write_wav(tmp_path / name, (speech(1.0) * 32767).astype(np.int16))).signal
        for name in ("x.wav", "x.flac")
    )
    assert wav == flac


def test_parts_of_files(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "x.wav", speech(2.0))
    for keys, seconds in (
        ({}, 2.0), ({"start": 0.5}, 1.5), ({"start": 0.5, "duration": 0.25}, 0.25),
        ({"start": 1.5, "duration": 3e5}, 0.5), ({"start": 3e5}, 0.0),
    ):  # fmt: skip
        facts = inspected(path, **keys)
        assert facts.problem is None
        assert facts.seconds == seconds
    assert found([facts], "outside")
    assert inspected(path, sample_rate=16000).problem is None
    wrong = inspected(path, sample_rate=8000).problem or ""
    assert "the manifest has 8000 Hz, the file has 16000 Hz: remove sample_rate" in wrong


def test_damaged_audio(tmp_path: Path) -> None:
    write_wav(tmp_path / "x.mp3", speech(4.0))
    (tmp_path / "cut.mp3").write_bytes((tmp_path / "x.mp3").read_bytes()[:4000])
    write_wav(tmp_path / "x.flac", speech(4.0))
    damaged = bytearray((tmp_path / "x.flac").read_bytes())
    damaged[len(damaged) // 2 :] = bytes(len(damaged) // 2)
    (tmp_path / "damaged.flac").write_bytes(damaged)
    assert found([inspected(tmp_path / "missing.wav")], "unreadable")
    assert found([inspected(tmp_path / "cut.mp3")], "cut-off")
    bad = [inspected(tmp_path / "damaged.flac")]
    assert found(bad, "cut-off") or found(bad, "unreadable")
