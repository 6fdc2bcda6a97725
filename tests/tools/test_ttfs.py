"""tools/ttfs.py counts from the client's signal to the last final message, and checks texts."""

import argparse
import asyncio
import json
from typing import Any

import numpy as np
import pytest
import soundfile
from websockets.asyncio.server import ServerConnection, serve

from asrkit.runtime.engine import BLOCK, SpeechDetector
from tests.conftest import PROJECT
from tools import ttfs

TEXT = "four five"
LIVE: list[dict[str, Any]] = [{"type": "partial", "text": TEXT}, {"type": "Results"}]
SIGNALS: dict[str, tuple[str, dict[str, Any]]] = {
    "asrkit": ("commit", {"type": "final", "text": TEXT}),
    "Deepgram": (
        "Finalize",
        {
            "type": "Results",
            "from_finalize": True,
            "channel": {"alternatives": [{"transcript": TEXT}]},
        },
    ),
}
OPTIONS = argparse.Namespace(seconds=0.5, turns=3)


async def of_server(protocol: str, wait_s: float, known: str, seconds: float) -> ttfs.Round:
    """Take turns on a server that answers the signal after `wait_s`."""
    signal, answer = SIGNALS[protocol]

    async def talk(connection: ServerConnection) -> None:
        async for message in connection:
            if isinstance(message, bytes):
                for live in LIVE:  # messages before the signal do not count
                    await connection.send(json.dumps(live))
            elif json.loads(message)["type"] == "start":
                await connection.send("{}")
            elif json.loads(message)["type"] == signal:
                await asyncio.sleep(wait_s)
                await connection.send(json.dumps(answer))

    samples = np.zeros(round(seconds * ttfs.RATE), np.int16)
    async with serve(talk, "127.0.0.1", 0) as server:
        address = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return await ttfs.take_turns(address, 0, protocol, [(samples, known)], 2, OPTIONS)


@pytest.mark.parametrize("protocol", ttfs.PROTOCOLS)
def test_time_from_the_signal_to_the_last_final_message(protocol: str) -> None:
    for wait_s in 0.05, 0.3:  # a time that another wait does not change would fail
        found = asyncio.run(of_server(protocol, wait_s, TEXT, 0.2))
        assert len(found.turns) >= OPTIONS.turns
        assert found.wrong == 0
        assert wait_s <= min(turn.final for turn in found.turns) < wait_s + 0.2


def test_control_another_text_is_counted() -> None:
    found = asyncio.run(of_server("asrkit", 0.0, "four nine", 0.1))
    assert found.wrong >= len(found.turns) >= OPTIONS.turns


def test_a_turn_ends_a_stop_time_after_the_last_speech() -> None:
    pytest.importorskip("silero_vad")
    samples, _ = soundfile.read(PROJECT / "tests/kept/speech/command.flac", dtype="int16")
    detector = SpeechDetector(1000 * BLOCK // ttfs.RATE)
    end = len(ttfs.heard(samples, detector))
    silence = np.zeros(ttfs.RATE, np.int16)
    assert len(ttfs.heard(np.concatenate([samples, silence]), detector)) == end
    with_more = np.concatenate([samples, silence, samples])
    assert len(ttfs.heard(with_more, detector)) == pytest.approx(
        len(samples) + len(silence) + end, abs=2 * BLOCK
    )
    cut = ttfs.heard(samples[: end - 3200], detector)  # a recording that ends with the speech
    assert len(cut) == pytest.approx(end, abs=2 * BLOCK)
