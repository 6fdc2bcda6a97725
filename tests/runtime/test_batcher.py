"""Streams that share steps are heard as each would be alone: neighbours leave no trace."""

import random
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

from asrkit import Batcher
from asrkit.backends.pytorch import eager
from asrkit.errors import UserError
from asrkit.model import FULL, Context
from asrkit.runtime import BatchedSession, Recognizer, Result
from asrkit.runtime.batcher import PATIENT_ROWS, PATIENT_TURN
from asrkit.search import GreedySearch, PrefixBeamSearch
from asrkit.text import CharTokenizer
from tests.conftest import speech, timed, tiny_model
from tests.laws.test_any_configuration import assert_same
from tests.laws.test_streaming import LETTERS, desynchronised, drain


def recognizer_of(**options: object) -> Recognizer:
    backend = eager(tiny_model(), Context(4, 12))
    return Recognizer(backend, LETTERS, PrefixBeamSearch(3), **options)  # type: ignore[arg-type]


def recordings(count: int) -> list[tuple[np.ndarray, int]]:
    """Of all lengths from nothing to three seconds, at several rates."""
    draw = random.Random(count)
    lengths = [0.0, 0.01, 0.05, 0.16, 3.0]
    lengths += [draw.uniform(0.1, 3.0) for _ in range(count - len(lengths))]
    rates = [draw.choice([8000, 16000, 44100]) for _ in lengths]
    return [(speech(s, i, r), r) for i, (s, r) in enumerate(zip(lengths, rates, strict=True))]


def test_threads_with_a_batcher_each_share_a_recognizer() -> None:
    """As the README has it for several cores; with hotwords, which searches share."""
    recognizer, heard = recognizer_of().with_hotwords(["ab", "hj"]), recordings(12)

    def hear(seed: int) -> list[Result]:
        return desynchronised(recognizer, heard, random.Random(seed))

    alone = [recognizer.transcribe(samples, rate) for samples, rate in heard]
    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(hear, range(4)):
            for result, one in zip(results, alone, strict=True):
                assert_same(result, one)


def test_control_rows_that_change_places_are_noticed() -> None:
    recognizer, heard = recognizer_of(), [speech(2.0, i) for i in range(2)]
    honest = recognizer.backend

    def swapped(feats, lengths, state):  # type: ignore[no-untyped-def]
        output = honest.step(feats, lengths, state)
        return output._replace(frames=output.frames[::-1])

    batcher = Batcher(recognizer_of())
    batcher.recognizer.engine.backend = honest._replace(step=swapped)
    sessions = given(batcher, heard)
    drain(batcher)
    alone = [recognizer.transcribe(samples) for samples in heard]
    pairs = zip(sessions, alone, strict=True)
    assert not any(timed(session.result) == timed(one) for session, one in pairs)


def given(batcher: Batcher, heard: list[np.ndarray]) -> list[BatchedSession]:
    """A session for each recording, which has all of it and has taken no step."""
    sessions = [batcher.start() for _ in heard]
    for session, samples in zip(sessions, heard, strict=True):
        session.accept(samples)
        session.finish()
    return sessions


def test_failed_session_leaves_no_trace_on_the_others() -> None:
    failing: list[int] = []

    def rewrite(text: str) -> str:
        if failing and len(text) > 4:
            failing.pop()
            raise RuntimeError("too long")
        return text.upper()

    recognizer, heard = recognizer_of(postprocess=rewrite), [speech(2.0, i) for i in range(4)]
    alone = [recognizer.transcribe(samples) for samples in heard]
    batcher = Batcher(recognizer)
    sessions = given(batcher, heard)
    while min(len(session.result.text) for session in sessions) < 6:
        batcher.step()
    failing += [1, 1]
    assert len(batcher.step()) == 4
    drain(batcher)
    failed = [session for session in sessions if session.error is not None]
    assert len(failed) == 2
    assert len(batcher._sessions) == 0
    for session in failed:
        kept = session.stream._past, session.stream._samples
        assert session.seconds_waiting == sum(map(np.size, kept)) == 0
        for again in (lambda s: s.result, lambda s: s.accept(speech(1.0)), lambda s: s.finish()):
            with pytest.raises(RuntimeError, match="failed, start another one: UserError") as said:
                again(session)
            assert said.value.__cause__ is session.error
    for session, wanted in zip(sessions, alone, strict=True):
        if session not in failed:
            assert_same(session.result, wanted)


def test_failed_step_of_the_network_can_be_repeated() -> None:
    recognizer, heard = recognizer_of(), [speech(1.0, i) for i in range(3)]
    alone = [recognizer.transcribe(samples) for samples in heard]
    batcher = Batcher(recognizer)
    sessions = given(batcher, heard)
    assert len(batcher.step()) == 3
    whole = recognizer.backend

    def exhausted(feats, lengths, state):  # type: ignore[no-untyped-def]
        raise MemoryError

    recognizer.engine.backend = whole._replace(step=exhausted)
    with pytest.raises(MemoryError):
        batcher.step()
    recognizer.engine.backend = whole
    drain(batcher)
    for session, wanted in zip(sessions, alone, strict=True):
        assert_same(session.result, wanted)


def test_sessions_that_waited_longest_step_first() -> None:
    """With more streams than rows, those that waited longest go first."""
    batcher = Batcher(recognizer_of(), 2)
    sessions = [batcher.start() for _ in range(5)]
    for session in sessions:
        session.accept(speech(0.16 * 3 + 0.1))
    backlog = [round(session.seconds_waiting / 0.16) for session in sessions]
    assert backlog == [3] * 5
    assert [len(batcher.step()) for _ in range(3)] == [2, 2, 2]
    assert [round(session.seconds_waiting / 0.16) for session in sessions] == [1, 2, 2, 2, 2]
    assert [session.seconds_processed for session in sessions] == [0.32, 0.16, 0.16, 0.16, 0.16]


@pytest.mark.parametrize("patient", [True, False])
def test_patient_sessions_leave_most_steps_to_others(patient: bool) -> None:
    """Without losing anything, nor waiting for ever; sessions that are not patient share steps."""
    batcher = Batcher(recognizer_of())
    samples = speech(3.0)
    files = [batcher.start(patient=patient) for _ in range(12)]
    for session in files:
        session.accept(np.tile(samples, 3))
    live = batcher.start()
    live.accept(samples)
    rows = []
    while live.seconds_waiting:
        moved = batcher.step()
        rows.append((live in moved, len(moved)))
    if not patient:
        assert all(row == (True, 13) for row in rows[:10])
        return
    turns = [i for i, (is_live, _) in enumerate(rows) if not is_live]
    assert turns
    assert all(b - a == PATIENT_TURN for a, b in pairwise(turns))
    assert all(count == (1 if is_live else PATIENT_ROWS) for is_live, count in rows)
    for session in files:
        session.finish()
    while moved := batcher.step():  # the live one could go on at any time
        assert len(moved) <= PATIENT_ROWS
    alone = recognizer_of().transcribe(np.tile(samples, 3), 16_000)
    for session in files:
        assert_same(session.result, alone)


def test_options_out_of_range_are_refused_by_name() -> None:
    full = Recognizer(eager(tiny_model(), FULL), CharTokenizer(["a"]), GreedySearch())
    with pytest.raises(UserError, match="full context"):
        Batcher(full)
    for wrong in (0, True, "3", 1.5, None, float("inf")):
        message = f"max_rows must be a whole number of at least 1, got {wrong!r}"
        with pytest.raises(UserError, match=re.escape(message)):
            Batcher(recognizer_of(), wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"sample rate must be .* got '16000'"):
        Batcher(recognizer_of()).start("16000")  # type: ignore[arg-type]
