"""The tool that measures a server counts the calls that are lost, and loses none of a good one."""

import asyncio
import importlib
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve

from tests.conftest import PROJECT


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
