"""A desk's work is bounded by its calls, whatever each of them sends."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from asrkit.audio import resampler
from asrkit.errors import UserError
from asrkit.runtime import Recognizer
from asrkit.serve.desk import Desk
from asrkit.serve.server import Server
from asrkit.serve.worker import MOST_ITEMS, CallError, News
from tests.conftest import PROJECT

Recordings = list[tuple[Path, np.ndarray]]


@pytest.fixture
def desk(served: Recognizer) -> Desk:
    return Desk(served)


async def settled(desk: Desk) -> None:
    """Wait until nothing is left for the desk to do."""
    for _ in range(200):
        if not desk._ready and not desk.calls:
            return
        await asyncio.sleep(0.02)
    raise TimeoutError("the desk still has work")


def test_20000_calls_that_are_dropped_at_once_leave_nothing_to_do(
    desk: Desk, served: Recognizer, recordings: Recordings
) -> None:
    path, samples = recordings[0]

    async def main() -> str:
        talking = desk.start(16_000)
        await talking.accept(samples)
        talking.end()
        for number in range(20_000):
            call = desk.start(16_000)
            await call.accept(samples[:160])
            call.commit()
            call.drop()
            assert not call.sent
            assert len(desk._ready) < 300  # those whose session had begun, and waits to be freed
            if number % 100 == 0:
                await asyncio.sleep(0)
        text = " ".join(each.text for each in await talking.segments())
        talking.drop()
        await settled(desk)
        return text

    assert asyncio.run(main()) == served.transcribe(path).text
    assert desk.open == 0
    assert not desk._begun
    assert not desk.batcher._sessions
    desk.close()


def test_a_desk_makes_a_step_after_a_round_however_many_calls_are_ready(
    desk: Desk, recordings: Recordings, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[float] = []
    step, serve = desk.batcher.step, Desk.serve
    rounds: list[int] = []

    def slow(self: Desk, call: object) -> None:
        time.sleep(0.002)
        served.append(time.perf_counter())
        serve(self, call)  # type: ignore[arg-type]

    def counted() -> list[object]:
        rounds.append(len(served))
        return step()  # type: ignore[return-value]

    monkeypatch.setattr(Desk, "serve", slow)
    monkeypatch.setattr(desk.batcher, "step", counted)

    async def main() -> None:
        calls = [desk.start(16_000) for _ in range(200)]
        for call in calls:
            await call.accept(recordings[0][1][:160])
        while len(served) < len(calls):
            await asyncio.sleep(0.02)
        for call in calls:
            call.drop()
        await settled(desk)

    asyncio.run(main())
    assert max(np.diff(rounds)) <= 6  # 10 ms of 2 ms each
    desk.close()


def test_empty_packets_wait_for_the_desk_as_others_do(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Desk, "ready", lambda desk, call: None)  # it never comes to them

    async def main() -> None:
        call = desk.start(16_000)
        for _ in range(MOST_ITEMS):
            await call.accept(np.zeros(0, np.int16))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(call.accept(np.zeros(0, np.int16)), 0.05)
        assert len(call.sent) == MOST_ITEMS
        for _ in range(10_000):
            call.commit()
        with pytest.raises(CallError, match="requests wait"):
            await call.accept(np.zeros(1, np.int16))
        assert not call.sent

    asyncio.run(main())
    desk.close()


def test_a_call_that_is_dropped_while_it_is_saved_answers(desk: Desk) -> None:
    async def main() -> None:
        call = desk.start(16_000)
        saving = asyncio.ensure_future(call.save())
        await asyncio.sleep(0)
        call.drop()
        with pytest.raises(CallError):
            await asyncio.wait_for(saving, 5)
        with pytest.raises(CallError):
            await call.save()

    asyncio.run(main())
    desk.close()


def test_a_call_after_the_desk_has_closed_is_told_so(desk: Desk) -> None:
    async def main() -> News | None:
        desk.close()
        call = desk.start(16_000)
        await call.accept(np.zeros(160, np.int16))
        return await asyncio.wait_for(call.news(), 5)

    with pytest.raises(CallError, match="closing"):
        asyncio.run(main())


def test_an_odd_rate_is_refused_before_its_weights_are_computed(
    served: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resampler, "tile_of", None)
    server = Server({"m": served})
    with pytest.raises(UserError, match="15999"), server.call(server.model(), 15_999):
        pass
    server.close()
    # Control: the rule is the one by which weights are tabulated.
    monkeypatch.undo()
    for rate in (8000, 11_025, 15_999, 44_100, 22_051):
        tabulated = resampler.Tile(rate, 16_000, "float32").weights is not None
        assert resampler.is_fast(rate) == tabulated


TRUNCATED = """
import os, shutil, sys, numpy as np, asrkit
shutil.copy(sys.argv[1], sys.argv[2])
recognizer = asrkit.load(sys.argv[2], chunk_size=8, second_pass="full")
os.truncate(sys.argv[2], 1000)
recognizer.transcribe(np.zeros(32_000, np.float32))
print("alive")
"""


def test_a_model_file_that_is_truncated_while_it_is_served_ends_no_process(tmp_path: Path) -> None:
    model = PROJECT / "asrkit/pretrained/small-en-alnum.safetensors"
    done = subprocess.run(
        [sys.executable, "-c", TRUNCATED, str(model), str(tmp_path / "m.safetensors")],
        capture_output=True, text=True, cwd=PROJECT,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
