"""Results of many recordings: each piece of audio that is read is reported while it is read."""

from pathlib import Path

import pytest

import asrkit
from asrkit.data.inputs import file_of
from asrkit.transcription import batches
from asrkit.transcription.batches import outcomes
from tests.conftest import speech, write_wav
from tests.running import talkative_model


def test_each_piece_of_a_long_recording_is_reported_before_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asrkit.data.recording.PIECE_SECONDS", 1.0)
    path = write_wav(tmp_path / "a.wav", speech(3.5))
    recognizer = asrkit.load(talkative_model(tmp_path / "m.safetensors"))
    found: list[float] = []
    (outcome,) = outcomes(recognizer, [file_of(str(path))], 60.0, found.append)
    assert found == pytest.approx([1.0, 1.0, 1.0, 0.5])
    assert outcome.seconds == pytest.approx(3.5)
    (silent,) = batches.outcomes(recognizer, [file_of(str(path))], 60.0)
    assert silent.result == outcome.result
