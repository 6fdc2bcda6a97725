"""One recogniser for threads, tasks and forked processes; one thread for a session."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import asrkit
from asrkit.backends.threads import usual_threads
from asrkit.errors import UserError
from asrkit.runtime import Recognizer, Result
from tests.conftest import speech, timed, write_wav
from tests.running import python, talkative_model

FORK = """
import multiprocessing, sys, torch, asrkit
recognizer = asrkit.load(sys.argv[1], threads=2)
torch.randn(800, 800) @ torch.randn(800, 800)
here = recognizer.transcribe(sys.argv[2]).text
fork = multiprocessing.get_context("fork")
def transcribed(path):
    return recognizer.transcribe(path).text
with fork.Pool(2) as pool:
    there = pool.map(transcribed, [sys.argv[2]] * 3)
print([text == here != "" for text in there])
inherited = fork.SimpleQueue()
def refused():
    try:
        asrkit.load(sys.argv[1], threads=2)
    except asrkit.UserError as error:
        inherited.put(str(error))
fork.Process(target=refused).start()
print(inherited.get())
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return talkative_model(tmp_path / "m.safetensors")


def test_a_forked_process_recognises_after_its_parent_did(model: Path, tmp_path: Path) -> None:
    wav = write_wav(tmp_path / "a.wav", speech(2.0))
    done = python(FORK, model, wav, OMP_NUM_THREADS="2")
    equal, refused = done.stdout.splitlines()
    assert equal == "[True, True, True]", done.stderr
    assert refused.startswith("threads must be 1 in a forked process, got 2")


@pytest.mark.parametrize(
    ("text", "threads"),
    [("3", 3), (" 3 ", 3), ("5,2", 5), ("100000", 1024),
     *((wrong, None) for wrong in ("", "0", "x", "-1", "1.5", "9" * 5000))],
)  # fmt: skip
def test_number_of_threads(monkeypatch: pytest.MonkeyPatch, text: str, threads: int | None) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert usual_threads() == (threads or len(os.sched_getaffinity(0)))


def listened(recognizer: Recognizer, number: int) -> Result:
    """The result of a recording of its own rate, in packets of its own sizes."""
    rate = (8000, 16000, 44100)[number % 3]
    samples, draw, at = speech(1.5, number % 4, rate), np.random.default_rng(number), 0
    session = recognizer.start(rate)
    while at < len(samples):
        session.accept(samples[at : (at := at + int(draw.integers(1, rate)))])
    return session.finish()


def test_sixteen_threads_and_tasks_of_asyncio_share_a_recogniser(model: Path) -> None:
    recognizer = asrkit.load(
        model, search="prefix_beam", second_pass="full", endpointer=asrkit.Endpointer(pause_ms=100)
    ).with_hotwords({"ab": 2.0})
    alone = [timed(listened(recognizer, number)) for number in range(12)]
    assert len({text for text, *_ in alone}) > 6
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda number: listened(recognizer, number), [*range(12)] * 2))
    assert [timed(each) for each in together] == alone * 2

    async def tasks() -> list[Result]:
        calls = (asyncio.to_thread(listened, recognizer, number) for number in range(12))
        return await asyncio.gather(*calls)

    assert [timed(each) for each in asyncio.run(tasks())] == alone


@pytest.mark.parametrize("call", ["accept", "commit", "finish", "save"])
def test_a_second_thread_in_a_session_is_refused_and_changes_nothing(
    call: str, model: Path
) -> None:
    inside, ended, samples = threading.Event(), threading.Event(), speech(1.5)

    def slowly(text: str) -> str:
        inside.set()
        assert ended.wait(10)
        return text

    session = asrkit.load(model, postprocess=slowly).start()
    thread = threading.Thread(target=session.accept, args=(samples,))
    thread.start()
    assert inside.wait(10)
    arguments = [samples] if call == "accept" else []
    with pytest.raises(RuntimeError, match="another thread uses this session"):
        getattr(session, call)(*arguments)
    ended.set()
    thread.join()
    # The control: the same thread is let in where the other has left.
    assert timed(session.finish()) == timed(asrkit.load(model).transcribe(samples))


@pytest.mark.parametrize("number", [0, -1, 1.5, "2", True, 1025])
def test_numbers_of_threads_out_of_range_are_refused(model: Path, number: object) -> None:
    with pytest.raises(UserError, match="threads must be 1 to 1024, got"):
        asrkit.load(model, threads=number)  # type: ignore[arg-type]
