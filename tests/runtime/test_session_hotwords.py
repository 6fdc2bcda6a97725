"""Hotwords of a session: in whatever packets its samples come, and whatever others listen for."""

from pathlib import Path

import numpy as np
import pytest

import asrkit
from asrkit.audio import AudioError
from asrkit.config.running import parse_search
from asrkit.model import Context
from asrkit.model_file import load_model
from asrkit.runtime import recognizer_of
from asrkit.text import normalize
from tests.conftest import speech, timed, write_wav
from tests.running import ONE_PASS, run, talkative_model

LISTS = [["ab  ba", "j"], {"cab": 6.0, "a": 1.5}, ["hi", "fa"], None]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return talkative_model(tmp_path / "m.safetensors")


@pytest.fixture
def recognizer(model: Path) -> asrkit.Recognizer:
    file = load_model(model)
    file.model.double()
    return recognizer_of(file, Context(4, 16), search=parse_search("prefix_beam"))


class Shared(asrkit.Recognizer):
    """Has one search for all sessions, that of the first."""

    def with_hotwords(self, hotwords: object) -> asrkit.Recognizer:
        self.first = getattr(self, "first", None) or super().with_hotwords(hotwords)
        return self.first


def side_by_side(recognizer: asrkit.Recognizer) -> list[object]:
    """What sessions with hotwords of their own hear in turns."""
    sessions = [recognizer.start(hotwords=hotwords) for hotwords in LISTS]
    for packet in np.split(speech(2.0), 20):
        for session in sessions:
            session.accept(packet)
    return [timed(session.finish()) for session in sessions]


def test_hotwords_of_a_session_change_no_other(recognizer: asrkit.Recognizer) -> None:
    """And shared hotwords are noticed: the control."""
    samples = speech(2.0)
    expected = [timed(recognizer.transcribe(samples, hotwords=hotwords)) for hotwords in LISTS]
    assert side_by_side(recognizer) == expected
    assert timed(recognizer.transcribe(samples)) == expected[LISTS.index(None)]
    recognizer.__class__ = Shared
    assert side_by_side(recognizer) != expected


def test_hotwords_are_spelled_as_the_models_texts(recognizer: asrkit.Recognizer) -> None:
    samples = speech(2.0)
    with pytest.raises(asrkit.UserError, match=r"hotword 'HI': not in the vocabulary: 'H' 'I'"):
        recognizer.start(hotwords=["HI"])
    recognizer.normalizer = lambda text: normalize(text, "lower")
    expected = timed(recognizer.transcribe(samples, hotwords={"hi": 6.0, "fa": 6.0}))
    for hotwords in ({" HI ": 6.0, "Fa": 6.0}, {"HI": 1.0, "hi": 6.0, "fa": 6.0}):
        assert timed(recognizer.transcribe(samples, hotwords=hotwords)) == expected
    assert timed(recognizer.transcribe(samples, hotwords=["hi", "fa"])) != expected  # other weights


def test_hotwords_that_cannot_be_used_are_refused_by_name(
    recognizer: asrkit.Recognizer, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(asrkit.UserError, match="hotword ' ': it has no word"):
        recognizer.transcribe(speech(0.1), hotwords=["ab", " "])
    with pytest.raises(asrkit.UserError, match=r"^hotword '!!!.*!!!': ") as error:
        recognizer.start(hotwords=["!" * 100_000])
    assert len(str(error.value)) < 300
    greedy = asrkit.load(model)
    assert greedy.start(hotwords=[]).finish().text == ""
    with pytest.raises(asrkit.UserError, match="cannot use hotwords; choose search prefix_beam"):
        greedy.start(hotwords=["ab"])
    with pytest.raises(AudioError):
        recognizer.transcribe(tmp_path / "none.wav", hotwords=["ab"])


def test_commands(model: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All take the file, its weights and the other weight, and hear what Python does."""
    hot, wav = corpus / "hot.txt", write_wav(corpus / "x.wav", speech(2.0))
    hot.write_text("hi\nfa\t6\n")
    options = ["--model", model, "--search", "prefix_beam", "--hotwords", hot]
    recognizer = asrkit.load(model, search="prefix_beam")
    expected = recognizer.transcribe(wav, hotwords={"hi": 2.0, "fa": 6.0}).text
    other = recognizer.transcribe(wav, hotwords={"hi": 9.0, "fa": 6.0}).text
    assert len({expected, other, recognizer.transcribe(wav).text}) == 3
    for command in (["decode", wav], ["stream", *ONE_PASS, wav]):
        for more, text in (([], expected), (["--hotword-weight", 9], other)):
            assert run(*command, *options, *more) == 0
            assert capsys.readouterr().out == f"{text}\n"
