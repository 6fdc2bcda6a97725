"""tools/callers.py sends all samples, counts delays, and takes the last text of a peer."""

import asyncio
import json
import sys

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve

from tests.conftest import PROJECT

sys.path.insert(0, str(PROJECT / "tools"))
from callers import Talk, talk
from protocols import WENET, Line

SAMPLES = np.arange(-12_000, 12_000, dtype=np.int16)  # 1.5 s: two chunks and a rest
CHUNK = 10_240  # samples
NEEDED = 600  # samples after the chunks that a step needs


def call(late: float) -> tuple[Talk, np.ndarray]:
    """Talk to a server like sherpa-onnx's, whose "Done!" overtakes its last text."""
    received: list[np.ndarray] = []

    async def answer(client: ServerConnection) -> None:
        chunks = 0
        async for message in client:
            if isinstance(message, str):
                await client.send("Done!")
                await client.send(json.dumps({"text": "one two three", "is_eof": True}))
                return
            received.append(np.frombuffer(message, np.float32))
            if sum(map(len, received)) >= (chunks + 1) * CHUNK + NEEDED:
                chunks += 1
                await asyncio.sleep(late)
                await client.send(json.dumps({"text": "one two", "is_eof": False}))

    async def run() -> Talk:
        async with serve(answer, "127.0.0.1", 0) as server:
            address = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            line = Line(address, WENET, packet=320)
            return await talk(line, line.packets(SAMPLES), 0)

    return asyncio.run(run()), np.concatenate(received)


@pytest.mark.parametrize("late", [0.0, 0.2])
def test_delays_count_from_the_packet_that_completes_a_chunk(late: float) -> None:
    talked, received = call(late)
    np.testing.assert_array_equal(np.rint(received * 32768), SAMPLES)
    assert talked.text == "one two three"
    assert len(talked.partials) == 2
    assert all(late <= delay < late + 0.1 for delay in talked.partials)
