"""CPU threads: chosen by the size of the network, and no forked process waits for its parent's."""

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

import asrkit
from asrkit.backends.onnx import OnnxStep
from asrkit.errors import UserError
from asrkit.runtime import Recognizer, Result, Session, threads
from asrkit.runtime.threads import SMALL, set_threads
from tests.conftest import speech, timed, write_wav
from tests.running import python, talkative_model
from tests.training.test_trainer import trainer

FORK = """
import multiprocessing, sys, numpy, torch, asrkit
recognizer = asrkit.load(sys.argv[1], threads=2)
assert torch.get_num_threads() == 2
a = torch.randn(800, 800)
a @ a
here = recognizer.transcribe(sys.argv[2]).text
fork = multiprocessing.get_context("fork")
def transcribed(path):
    return recognizer.transcribe(path)
with fork.Pool(2) as pool:
    there = pool.map(transcribed, [sys.argv[2]] * 3)
print([each.text == here != "" for each in there])
inherited = fork.SimpleQueue()
child = fork.Process(target=lambda: inherited.put(recognizer.transcribe(sys.argv[2]).text))
child.start()
print(inherited.get() == here, torch.get_num_threads())
def refused():
    try:
        asrkit.load(sys.argv[1], threads=2)
    except asrkit.UserError as error:
        inherited.put(str(error))
fork.Process(target=refused).start()
print(inherited.get())
"""

PRELOADED = """
import multiprocessing, sys, threading, asrkit
from starlette.testclient import TestClient
from asrkit.serve.app import app_of
from asrkit.serve.server import Limits, Server

model, wav = sys.argv[1:]
recognizer = asrkit.load(model, threads=1)
text = recognizer.transcribe(wav).text
built_before = app_of(Server({"m": recognizer}, Limits()))
ended, fork = threading.Event(), multiprocessing.get_context("fork")

def compute():
    while not ended.is_set():
        recognizer.transcribe(wav)

def upload(before):
    app = built_before if before else app_of(Server({"m": recognizer}, Limits()))
    with TestClient(app, base_url="http://127.0.0.1") as client, open(wav, "rb") as file:
        given = {"files": {"file": file}, "data": {"model": "m"}}
        answer = client.post("/v1/audio/transcriptions", **given).json()
    queue.put(answer.get("text") or answer["error"]["message"])

queue = fork.SimpleQueue()
threading.Thread(target=compute).start()
told = "the server was built before its process was forked: build it in each process"
for expected in text, told:
    child = fork.Process(target=upload, args=(expected == told,))
    child.start()
    child.join(60)
    print(not queue.empty() and queue.get() == expected != "")
ended.set()
"""


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    monkeypatch.setattr(threads._Setting, "chosen", None)  # as in a process that set none yet
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return talkative_model(tmp_path / "m.safetensors")


def test_a_forked_process_recognises_after_its_parent_did(model: Path, tmp_path: Path) -> None:
    wav = write_wav(tmp_path / "a.wav", speech(2.0))
    done = python(FORK, model, wav, OMP_NUM_THREADS="2")
    *equal, refused = done.stdout.splitlines()
    assert equal == ["[True, True, True]", "True 2"], done.stderr
    assert refused.startswith("threads must be 1 in a forked process, got 2")


@pytest.mark.slow
def test_processes_that_are_forked_from_a_preloaded_server(model: Path, tmp_path: Path) -> None:
    """A model that is loaded before a fork, as by gunicorn --preload, serves; a server that is
    built before says so, while a thread computes."""
    wav = write_wav(tmp_path / "a.wav", speech(1.0))
    done = python(PRELOADED, model, wav)
    assert done.stdout.split() == ["True", "True"], done.stdout + done.stderr


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
        together = list(pool.map(lambda number: listened(recognizer, number), [*range(12)] * 4))
    assert [timed(each) for each in together] == alone * 4

    async def tasks() -> list[Result]:
        calls = (asyncio.to_thread(listened, recognizer, number) for number in range(12))
        return await asyncio.gather(*calls)

    assert [timed(each) for each in asyncio.run(tasks())] == alone


@pytest.mark.parametrize("call", ["accept", "commit", "finish", "save"])
def test_a_second_thread_in_a_session_is_refused_and_changes_nothing(
    call: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, ended = threading.Event(), threading.Event()
    samples = speech(1.5)

    def other(session: Session) -> object:
        return session.accept(samples) if call == "accept" else getattr(session, call)()

    def during(expected: AbstractContextManager[object]) -> Result:
        """The result where another thread calls while the first one computes."""
        session = asrkit.load(model).start()
        step, waits = session._step, [True]

        def slow_step() -> None:
            if waits and waits.pop():
                inside.set()
                ended.wait(10)
            step()

        monkeypatch.setattr(session, "_step", slow_step)
        inside.clear(), ended.clear()
        thread = threading.Thread(target=session.accept, args=(samples,))
        thread.start()
        assert inside.wait(10)
        with expected:
            other(session)
        ended.set()
        thread.join()
        return session.finish()

    refused = during(pytest.raises(RuntimeError, match="another thread uses this session"))
    assert timed(refused) == timed(asrkit.load(model).transcribe(samples))
    monkeypatch.setattr(Session, "_alone", lambda self: nullcontext())
    during(nullcontext())  # control: without the check nothing is refused


def test_onnx_runtime_fails_at_once_in_a_forked_process() -> None:
    step = OnnxStep.__new__(OnnxStep)
    step.threads, step.process = 2, os.getpid() + 1
    with pytest.raises(UserError, match=r"do not survive a fork: call asrkit\.load in this"):
        step.run({})
    step.threads = 1
    with pytest.raises(AttributeError):  # control: it asks the session, which is not there
        step.run({})


def test_a_small_network_takes_one_thread_and_a_large_one_what_torch_had(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But one in a process of multiprocessing."""
    torch.set_num_threads(3)
    asrkit.load(model)
    assert torch.get_num_threads() == 1
    assert set_threads(None, SMALL) == torch.get_num_threads() == 3
    asrkit.load(model)
    asrkit.load(model, threads=2)
    assert torch.get_num_threads() == 2
    assert set_threads(None, SMALL) == 3
    torch.set_num_threads(4)  # the program's own choice
    assert set_threads(None, SMALL) == 4
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    assert set_threads(None, SMALL) == 1


@pytest.mark.parametrize(
    ("asked", "small", "expected"), [(0, True, 1), (0, False, 3), (2, True, 2), (2, False, 2)]
)
def test_a_training_chooses_likewise(
    asked: int, small: bool, expected: int, corpus: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if not small:
        monkeypatch.setattr(threads, "SMALL", 0)
    torch.set_num_threads(3)
    trainer(corpus, tmp_path, num_threads=asked)
    assert torch.get_num_threads() == expected


@pytest.mark.parametrize("number", [0, -1, 1.5, "2", True, threads.MOST_THREADS + 1])
def test_numbers_of_threads_out_of_range_are_refused(model: Path, number: object) -> None:
    with pytest.raises(UserError, match="threads must be 1 to 1024, got"):
        asrkit.load(model, threads=number)  # type: ignore[arg-type]
