"""The work of a worker is bounded by its calls, whatever each of them sends."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from anyio import fail_after

from asrkit.runtime import BatchedSession, Recognizer
from asrkit.serve.calls import MOST_ITEMS, Call, CallError, CallUpdate
from asrkit.serve.worker import Worker
from tests.conftest import PROJECT
from tests.running import python
from tests.serve.running import Recordings


@pytest.fixture
def worker(served: Recognizer) -> Iterator[Worker]:
    worker = Worker(served)
    yield worker
    worker.close()


async def settled(worker: Worker) -> None:
    """Wait until nothing is left for the worker to do."""
    with fail_after(60):
        while worker._ready or worker._running:
            await asyncio.sleep(0.02)


def test_calls_that_are_dropped_at_once_leave_nothing_to_do(
    worker: Worker, served: Recognizer, recordings: Recordings
) -> None:
    path, samples = recordings[0]

    async def main() -> str:
        talking = worker.start(16_000)
        await talking.accept(samples)
        talking.finish()
        for number in range(5_000):
            call = worker.start(16_000)
            await call.accept(samples[:160])
            call.commit()
            call.cancel()
            assert not call.inbox
            assert len(worker._ready) < 300  # those whose session had begun, and waits to be freed
            if number % 100 == 0:
                await asyncio.sleep(0)
        text = " ".join(each.text for each in await talking.segments())
        talking.cancel()
        await settled(worker)
        return text

    assert asyncio.run(main()) == served.transcribe(path).text
    assert not worker.calls
    assert not worker.batcher._sessions


def test_a_worker_takes_a_step_after_a_round_however_many_calls_are_ready(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, serve, served, rounds = worker.batcher.step, Worker.serve, list[int](), list[int]()

    def slow(self: Worker, call: Call) -> None:
        if self is worker:  # servers of other tests may have workers in this process
            time.sleep(0.002)
            served.append(0)
        serve(self, call)

    def counted() -> list[BatchedSession]:
        rounds.append(len(served))
        return step()

    monkeypatch.setattr(Worker, "serve", slow)
    monkeypatch.setattr(worker.batcher, "step", counted)

    async def main() -> None:
        calls = [worker.start(16_000) for _ in range(50)]
        for call in calls:
            await call.accept(np.zeros(16_000, np.int16))
        while len(served) < len(calls):
            await asyncio.sleep(0.02)

    asyncio.run(main())
    assert max(np.diff(rounds)) <= 6  # 10 ms of 2 ms each


def missing(call: Call) -> int:
    """Return the number of samples that complete the next chunk."""
    assert call._appended is not None
    return call._chunk_end(call._chunks + 1) - call._appended


def test_the_worker_takes_audio_when_it_completes_a_chunk(
    worker: Worker, served: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[int] = []
    monkeypatch.setattr(Worker, "_wake", lambda worker, call, *asks: woken.append(len(call.inbox)))

    async def main(rate: int) -> None:
        stream, call = served.start(rate).stream, worker.start(rate)
        for size in np.random.default_rng(0).integers(1, rate // 10, 60):
            samples = np.zeros(size, np.float32)
            due, count = stream.due, len(woken)
            assert served.engine.spec.chunk_frames > 1  # else every packet may complete one
            stream.append(samples)
            left = missing(call)
            call.append(samples)
            assert (len(woken) > count) == (stream.due > due) == (left <= size)
        call.commit()
        count = len(woken)
        call.append(np.zeros(missing(call) - 1, np.float32))
        assert len(woken) == count
        call.append(np.zeros(1, np.float32))
        assert len(woken) == count + 1

    for rate in (8000, 16_000, 22_050, 44_100, 48_000):
        asyncio.run(main(rate))


@pytest.mark.parametrize("shares", [True, False])
def test_chunks_that_come_soon_after_a_step_share_the_next(
    worker: Worker, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, step, have_come = list[int](), worker.batcher.step, threading.Event()

    def counted() -> list[BatchedSession]:
        moved = step()
        rows.extend([len(moved)] if moved else [])
        return moved

    monkeypatch.setattr(worker.batcher, "step", counted)
    monkeypatch.setattr("asrkit.serve.worker.ROUND_S", 10.0)
    monkeypatch.setattr(worker._asked, "wait", lambda seconds: have_come.wait(20 * seconds))
    worker._pause = 1.0 if shares else 0.0

    async def main() -> None:
        calls = [worker.start(16_000) for _ in range(5)]
        for number, call in enumerate(calls):
            await call.accept(np.zeros(missing(call), np.int16))
            if number == 0 or not shares:
                assert await call.next_update() is not None
        have_come.set()
        for call in calls[1:] if shares else ():
            assert await call.next_update() is not None
        for call in calls:
            call.cancel()
        await settled(worker)

    asyncio.run(main())
    assert rows == ([1, 4] if shares else [1, 1, 1, 1, 1])


@pytest.mark.parametrize("asks", [True, False])
def test_who_asks_for_the_last_text_waits_for_no_others(worker: Worker, asks: bool) -> None:
    worker._pause = 60.0

    async def main() -> None:
        first, second = worker.start(16_000), worker.start(16_000)
        await first.accept(np.zeros(missing(first), np.int16))
        assert await first.next_update() is not None
        await second.accept(np.zeros(missing(second), np.int16))
        if asks:
            second.commit()
            update = await asyncio.wait_for(second.next_update(), 20.0)
            assert update is not None
            assert update.seconds > 0
        else:  # the control
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(second.next_update(), 0.5)
        first.cancel()
        second.cancel()
        worker._asked.set()  # the worker need not wait any longer
        await settled(worker)

    asyncio.run(main())
    started = time.perf_counter()
    worker.close()  # in the middle of a pause, too
    assert time.perf_counter() - started < 20.0


@pytest.mark.parametrize("is_late", [True, False])
def test_calls_end_with_the_worker(worker: Worker, is_late: bool) -> None:
    """Also those whose audio it has not taken, and those that begin later."""

    async def main() -> CallUpdate | None:
        if is_late:
            worker.close()
        call = worker.start(16_000)
        await call.accept(np.zeros(16_000 if is_late else 160, np.int16))
        worker.close()
        return await asyncio.wait_for(call.next_update(), 5)

    with pytest.raises(CallError, match="closing"):
        asyncio.run(main())


def test_empty_packets_wait_for_the_worker_as_others_do(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "_wake", lambda worker, call: None)  # it never comes to them

    async def main() -> None:
        call = worker.start(16_000)
        for _ in range(MOST_ITEMS):
            await call.accept(np.zeros(0, np.int16))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(call.accept(np.zeros(0, np.int16)), 0.05)
        assert len(call.inbox) == MOST_ITEMS

    asyncio.run(main())


def test_a_call_that_is_dropped_while_it_is_saved_answers(worker: Worker) -> None:
    async def main() -> None:
        call = worker.start(16_000)
        with worker._changed:  # else the thread may save it before it is dropped
            saving = call.save()
            call.cancel()
        with pytest.raises(CallError):
            await asyncio.wait_for(saving, 5)
        with pytest.raises(CallError):
            await call.save()

    asyncio.run(main())


def test_an_error_of_a_step_ends_its_calls_and_not_the_worker(
    worker: Worker, served: Recognizer, recordings: Recordings,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Calls that began later waited for ever."""
    (path, samples), step = recordings[0], worker.batcher.step
    errors = [OSError("No space left on device")]

    def failing() -> list[BatchedSession]:
        moved = step()
        if moved and errors:
            raise errors.pop()
        return moved

    monkeypatch.setattr(worker.batcher, "step", failing)

    async def text() -> str:
        call = worker.start(16_000)
        await call.accept(samples)
        call.finish()
        return " ".join(each.text for each in await asyncio.wait_for(call.segments(), 20))

    async def main() -> str:
        with pytest.raises(CallError, match="No space left"):
            await text()
        return await text()

    assert asyncio.run(main()) == served.transcribe(path).text
    assert "a step of the network failed" in caplog.text


TRUNCATED = """
import os, shutil, sys, numpy as np, asrkit
shutil.copy(sys.argv[1], sys.argv[2])
recognizer = asrkit.load(sys.argv[2], chunk_size=8, second_pass="full")
os.truncate(sys.argv[2], 1000)
recognizer.transcribe(np.zeros(32_000, np.float32))
"""


def test_a_model_file_that_is_truncated_while_it_is_served_ends_no_process(tmp_path: Path) -> None:
    model = PROJECT / "asrkit/pretrained/small-en-alnum.safetensors"
    assert python(TRUNCATED, model, tmp_path / "m.safetensors").returncode == 0
