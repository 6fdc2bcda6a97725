"""Recogniser and sessions: any audio in, words with times out, no session touches another."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import asrkit
from asrkit import audio
from asrkit.model_file import save_model
from asrkit.runtime import recognizer_of
from asrkit.search import GreedySearch
from asrkit.text import END_OF_TURN, CharTokenizer
from tests.conftest import speech, timed, write_wav
from tests.test_model_file import a_file


@pytest.fixture
def recognizer() -> asrkit.Recognizer:
    return recognizer_of(a_file(CharTokenizer(list("abcdefghij "))))


def test_load_takes_what_is_not_given_from_the_model_file(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_model(path, a_file())
    recognizer = asrkit.load(path)
    assert (recognizer.chunk_size, recognizer.left_context) == (16, 64)
    assert asrkit.load(path, chunk_size="full").left_context == 0
    assert isinstance(recognizer.search, GreedySearch)
    assert asrkit.load(path, search="prefix_beam").search.beam == 10
    options = {"kind": "prefix_beam", "beam": 3, "min_token_prob": 0}
    assert asrkit.load(path, search=options).search.beam == 3


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("search", "magic", "'search.kind': must be one of .* got 'magic'"),
        ("search", {"kind": "prefix_beam", "beem": 3}, "has no option 'beem'; it has beam,"),
        ("chunk_size", True, "chunk_size must be 1 to 90000 frames or 'full', got True"),
        ("left_context", 1.5, "left_context must be 0 to 90000 frames, got 1.5"),
        ("device", "abacus", "^device must be one of cpu.* got 'abacus'$"),
        ("device", None, "^device must be one of cpu.* got None$"),
        ("endpointer", 600, "^endpointer must be an asrkit.Endpointer, got 600"),
    ],
)
def test_load_refuses_values_that_do_not_fit_by_name(
    tmp_path: Path, option: str, value: Any, message: str
) -> None:
    save_model(tmp_path / "model.safetensors", a_file())
    with pytest.raises(asrkit.UserError, match=message) as error:
        asrkit.load(tmp_path, **{option: value})
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 120


def test_what_torch_makes_by_default_changes_nothing() -> None:
    pytest.importorskip("silero_vad")

    def text() -> str:
        endpointer = asrkit.Endpointer(vad=True)
        recognizer = asrkit.load("small-en-alnum", backend="eager", endpointer=endpointer)
        session = recognizer.start(8000)
        session.accept(speech(2.0, rate=8000))
        return f"{session.finish()} {recognizer.transcribe_batch([speech(1.0)])}"

    expected = text()
    try:
        torch.set_default_dtype(torch.float64)
        assert text() == expected
        torch.set_default_device("meta")  # whose tensors cannot be read
        assert text() == expected
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


def test_dtypes_channels_and_paths_agree(recognizer: asrkit.Recognizer, tmp_path: Path) -> None:
    samples = np.round(speech(2.0) * 32767).astype(np.int16)
    path = write_wav(tmp_path / "x.wav", samples)
    expected = timed(recognizer.transcribe(samples))
    assert expected[0]
    floats, data = samples.astype(np.float32) / 32768, path.read_bytes()
    after = io.BytesIO(b"header" + data)
    after.seek(6)
    stereo = np.stack([floats, floats], axis=1)
    for same in (floats, stereo, path, str(path), data, path.open("rb"), after):
        assert timed(recognizer.transcribe(same)) == expected
    assert timed(recognizer.transcribe(data[: len(data) // 2])) != expected  # the control


def test_a_session_that_has_finished_has_ended(recognizer: asrkit.Recognizer) -> None:
    session = recognizer.start()
    session.accept(speech(3.0))
    final = session.finish()
    assert final.is_final
    assert final.text
    assert session.finish() == final
    with pytest.raises(RuntimeError, match="has ended; start another"):
        session.accept(speech(0.1))


@pytest.mark.parametrize("where", ["features", "network", "postprocess", "Ctrl-C"])
def test_any_other_exception_ends_the_session(where: str) -> None:
    """Half of what it was given was taken, and it says so ever after."""
    calls: list[str] = []

    def maybe(station: str, value: Any) -> Any:
        calls.append(station)
        if armed and station in where.replace("Ctrl-C", "network"):
            raise KeyboardInterrupt if where == "Ctrl-C" else ValueError(f"{station} broke" * 99)
        return value

    armed = False
    recognizer = recognizer_of(
        a_file(CharTokenizer(list("abcdefghij "))),
        postprocess=lambda text: maybe("postprocess", text),
    )
    network, frontend = recognizer.backend.step, recognizer.engine.frontend
    features = frontend.frames
    recognizer.engine.backend = recognizer.backend._replace(
        step=lambda *inputs: maybe("network", network(*inputs))
    )
    frontend.frames = lambda x: maybe("features", features(x))  # type: ignore[method-assign]
    session, other = recognizer.start(), recognizer.start()
    other.accept(speech(1.5)[:8000])
    session.accept(speech(1.5))
    assert {*calls} == {"features", "network", "postprocess"}
    armed = True
    with pytest.raises(KeyboardInterrupt if where == "Ctrl-C" else ValueError) as raised:
        session.accept(speech(1.5))
    armed = False
    for again in (lambda: session.accept(speech(1.0)), session.finish, session.finish):
        with pytest.raises(RuntimeError, match="session failed, start another one: ") as said:
            again()
        assert said.value.__cause__ is raised.value
        assert len(str(said.value)) < 200
    other.accept(speech(1.5)[8000:])
    assert timed(other.finish()) == timed(recognizer.transcribe(speech(1.5)))


def test_a_batch_takes_what_a_session_takes(recognizer: asrkit.Recognizer) -> None:
    floats = [np.round(speech(1.0, i) * 32767).astype(np.float32) / 32768 for i in range(3)]
    expected = [timed(recognizer.transcribe(each)) for each in floats]
    assert len({text for text, _, _ in expected}) == 3
    fixed, stereo = (floats[1] * 32768).astype(np.int16), np.stack([floats[2]] * 2, axis=1)
    batch = recognizer.transcribe_batch([floats[0].tolist(), fixed, stereo])
    assert [timed(each) for each in batch] == expected
    assert recognizer.transcribe_batch(iter([])) == []


def test_a_batch_with_a_bad_utterance_is_refused_before_anything_runs(
    recognizer: asrkit.Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recognizer, "engine", None)
    good = speech(1.0)
    for bad in (np.append(good, np.float32(np.nan)), good * 32768, good[None].repeat(2, 0), None):
        with pytest.raises(audio.AudioError, match=r"^utterance 1: .*samples must be"):
            recognizer.transcribe_batch([good, bad, good])


def test_recognisers_with_other_options_share_their_search() -> None:
    """So the streams of a batcher share its steps, whatever their endpointers are."""
    tokenizer = CharTokenizer(list("ab")).with_label(END_OF_TURN)
    recognizer = recognizer_of(a_file(tokenizer))
    decoding = recognizer.decoding._replace(endpointer=asrkit.Endpointer(300, end_of_turn="high"))
    assert recognizer.search.end_of_turn == tokenizer.vocab_size - 1
    assert recognizer.with_decoding(decoding).search is recognizer.search
    assert recognizer.with_search(GreedySearch()).search is not recognizer.search  # the control
