"""The tool that measures a server counts the calls that are lost, and loses none of a good one."""

import asyncio
import importlib
import shutil
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve

from tests.conftest import PROJECT, RECORDINGS


@pytest.mark.parametrize("answers", [True, False])
def test_a_missed_ping_is_a_lost_call(answers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROJECT / "tools")
    tool: Any = importlib.import_module("load_test")
    connect = tool.connect
    pings = {} if answers else {"ping_interval": 0.05, "ping_timeout": 0.1, "close_timeout": 0.1}
    monkeypatch.setattr(tool, "connect", lambda *where, **how: connect(*where, **how, **pings))

    async def handle(call: ServerConnection) -> None:
        await call.recv()
        if not answers:
            call.transport.pause_reading()  # pings wait
        await call.send("{}")
        if not answers:
            await asyncio.sleep(0.5)
        async for message in call:
            if isinstance(message, str):
                await call.send('{"type": "final", "text": "a"}')
                return

    async def main() -> tuple[list[Any], list[str]]:
        lost: list[str] = []
        ended = {"ping_interval": None, "close_timeout": 0.1}
        async with serve(handle, "127.0.0.1", 0, **ended) as server:
            host, port = server.sockets[0].getsockname()
            samples = np.zeros(4800, np.int16)
            where = f"ws://{host}:{port}"
            return await tool.callers(where, [samples], 1, 0.0, lost), lost

    talks, lost = asyncio.run(main())
    assert [each.text for each in talks] == (["a"] if answers else [])
    assert ["keepalive ping timeout" in each for each in lost] == ([] if answers else [True])


def test_delays_that_are_not_measured_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reconnects has none; the control is one without."""
    monkeypatch.syspath_prepend(PROJECT / "tools")
    tool: Any = importlib.import_module("load_test")
    session = SimpleNamespace(accept=len, finish=lambda: SimpleNamespace(text="a"))
    monkeypatch.setattr(tool, "RemoteSession", lambda *_: session)
    again = asyncio.run(tool.talk_again("", np.zeros(1600, np.int16), 0, 0.0))
    assert again.text == "a"
    assert tool.delays([again, again]) == ["-", "-", "-"]
    measured = tool.Talk([0.1, 0.1], 0.2, 0.3, "a", 0)
    assert tool.delays([measured, again, measured]) == ["100, 100, 100", "200, 200, 200", "300"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="--workers is for Linux")
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
def test_no_call_is_lost_while_a_server_is_replaced_and_its_redis_goes_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("redis")
    monkeypatch.syspath_prepend(PROJECT / "tools")
    tool: Any = importlib.import_module("load_test")
    options = ["--streams", "2", "--seconds", "60", "--misbehaving", "2", "--redis"]
    options += ["--disturb-s", "15", "--serve", "--workers 2"]
    monkeypatch.setattr(tool, "AWAY_S", 5.0)
    monkeypatch.setattr(sys, "argv", ["load_test.py", *options, f"{RECORDINGS}/an4/dev.jsonl"])
    assert tool.main() == 0
    assert "| 2 | 0 |" not in capsys.readouterr().out  # calls were made
