"""Results of many recordings: long ones are read in pieces."""

from pathlib import Path

import pytest

import asrkit
from asrkit.data.inputs import file_of
from asrkit.runtime import Result
from asrkit.transcription import batches
from asrkit.transcription.batches import outcomes
from tests.conftest import speech, write_wav
from tests.running import talkative_model


def test_a_long_recording_is_decoded_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_wav(tmp_path / "a.wav", speech(3.5))
    recognizer = asrkit.load(talkative_model(tmp_path / "m.safetensors"))
    (whole,) = outcomes(recognizer, [file_of(str(path))], 60.0)
    monkeypatch.setattr("asrkit.data.recording.PIECE_SECONDS", 1.0)
    monkeypatch.setattr(batches, "at_16_khz", None)  # which would read the whole recording
    (pieces,) = outcomes(recognizer, [file_of(str(path))], 60.0)
    assert isinstance(pieces.result, Result)
    assert isinstance(whole.result, Result)
    assert pieces.result.text == whole.result.text != ""
    assert pieces.seconds == whole.seconds == pytest.approx(3.5)
