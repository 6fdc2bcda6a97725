"""A commit ends a segment: what is between two of them is a recording of its own."""

import numpy as np
import pytest
import torch

from asrkit import Batcher, Endpointer
from asrkit.backends.pytorch import eager
from asrkit.errors import UserError
from asrkit.model import Context, EncoderState
from asrkit.runtime import Recognizer
from asrkit.runtime.stream import Stream
from asrkit.search import GreedySearch, PrefixBeamSearch
from tests.conftest import speech, tiny_model
from tests.laws.test_any_configuration import assert_same, one_after_another
from tests.laws.test_streaming import LETTERS, drain, packets

MODEL = tiny_model().double()


def recognizer_of(two: bool = False, pauses: bool = False) -> Recognizer:
    return Recognizer(
        eager(MODEL, Context(4, 12)), LETTERS, GreedySearch(),
        endpointer=Endpointer(pause_ms=80) if pauses else None,
        second_pass=eager(MODEL, Context(8, 12)) if two else None,
    )  # fmt: skip


def recording() -> list[np.ndarray]:
    """Parts between commits, one of them shorter than a frame."""
    whole = speech(6.0, 3)
    return np.split(whole, [20_000, 20_100, 55_555])


def test_control_a_past_beyond_the_commit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    recognizer, parts = recognizer_of(), recording()
    session, states = recognizer.start(), list[EncoderState]()
    init = Stream.__init__

    def keep_state(stream: Stream, *arguments: object) -> None:
        init(stream, *arguments)  # type: ignore[arg-type]
        if states:
            stream.state = states[-1]

    monkeypatch.setattr(Stream, "__init__", keep_state)
    for part in parts:
        session.accept(part)
        states.append(session.stream.state)
        session.commit()
    result = session.finish()
    monkeypatch.undo()
    assert result.text != one_after_another(recognizer, parts).text


def test_control_the_likeliest_hypothesis_is_not_stable() -> None:
    """A beam's likeliest hypothesis is taken back where what all share is not."""
    search, taken_back = PrefixBeamSearch(4), 0
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(200, 11, generator=draw).log_softmax(1).double().numpy()
    state, likeliest, stable = search.start(), (), ()
    for row in rows:
        state = search.step(state, row[None])
        now, certain = search.partial(state).tokens, search.stable(state)
        taken_back += now[: len(likeliest)] != likeliest
        assert certain[: len(stable)] == stable == now[: len(stable)]
        likeliest, stable = now, certain
    assert taken_back
    assert len(stable) > 5


def test_updates_add_up_to_the_result_and_cost_what_is_new() -> None:
    session, before, segments = recognizer_of(pauses=True).start(), None, []
    most = 0
    for number in range(4):
        for packet in packets(speech(4.0, number), number):
            now = session.accept(packet)
            update = now.since(before)
            segments += update.segments
            most = max(most, len(update.segments) + len(update.words))
            words = [word for segment in segments for word in segment.words] + [*update.words]
            assert words == list(now.words)
            before = now
        before = session.commit()
        segments = list(before.segments)
    update = session.finish().since(before)
    assert update == ((), (), "", True)
    assert most < 4 <= len(before.words)


def test_session_with_its_own_recognizer_equals_that_recognizer() -> None:
    backend, greedy = eager(MODEL, Context(4, 12)), GreedySearch()
    recognizers = [
        Recognizer(backend, LETTERS, greedy),
        Recognizer(backend, LETTERS, PrefixBeamSearch(3), endpointer=Endpointer(pause_ms=80)),
        Recognizer(backend, LETTERS, greedy, second_pass=eager(MODEL, Context(8, 12))),
        Recognizer(backend, LETTERS, greedy, second_pass=eager(MODEL, Context(16, 12))),
        Recognizer(backend, LETTERS, greedy, postprocess=str.upper),
    ]
    batcher = Batcher(recognizers[0])
    sessions = [batcher.start(recognizer=each) for each in recognizers]
    samples = speech(3.0, 1)
    for session in sessions:
        session.accept(samples)
        session.finish()
    drain(batcher)
    results = [session.result for session in sessions]
    for result, recognizer in zip(results, recognizers, strict=True):
        assert_same(result, recognizer.transcribe(samples))
    assert len({result.text for result in results}) > 2
    with pytest.raises(UserError, match="own backend"):
        batcher.start(recognizer=recognizer_of())


def test_commits_that_wait_are_bounded() -> None:
    batcher = Batcher(recognizer_of())
    session, samples = batcher.start(), speech(1.0, 1)
    for _ in range(100):
        session.accept(samples[:700])
        session.commit()
    session.accept(samples[:700])
    with pytest.raises(UserError, match="100 commits"):
        session.commit()
    drain(batcher)
    session.commit()


def test_commits_that_wait_are_saved() -> None:
    recognizer, parts = recognizer_of(two=True, pauses=True), recording()
    batcher, twin = Batcher(recognizer), Batcher(recognizer_of(two=True, pauses=True))
    session = batcher.start()
    for part in parts[:3]:
        session.accept(part)
        session.commit()
    while not session.stream.ended_feats:  # a segment waits for the second pass
        batcher.step()
    restored = twin.restore(session.save())
    for each in (session, restored):
        each.accept(parts[3])
        each.finish()
    while batcher.step() or twin.step():
        pass
    assert restored.result == session.result
    assert_same(restored.result, one_after_another(recognizer, parts))
    assert restored.commits == session.commits == 3


def test_closed_batcher_cancels_sessions_and_starts_none() -> None:
    batcher = Batcher(recognizer_of())
    session = batcher.start()
    session.accept(speech(1.0, 0))
    batcher.close()
    assert not batcher.step()
    assert session.seconds_waiting == 0
    with pytest.raises(RuntimeError, match="ended"):
        session.accept(speech(1.0, 0))
    with pytest.raises(RuntimeError, match="closed"):
        batcher.start()
