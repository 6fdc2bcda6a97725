"""/v1/stream with several channels: each has what its samples have alone, whatever happens."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from asrkit.runtime import Recognizer
from asrkit.serve import resumption
from asrkit.serve.calls import CallUpdate, SavedCall
from asrkit.serve.dialects.asrkit_stream import AsrkitStream
from asrkit.serve.dialects.messages import Start
from asrkit.serve.resumable import ResumableConversation
from asrkit.serve.resumption import SuspendedCall
from asrkit.serve.server import Limits, Server
from asrkit.serve.store import SqliteStore
from tests.running import run
from tests.serve.offline import segment, update
from tests.serve.running import Recordings, connected, serving
from tests.serve.test_client import cutting
from tests.serve.test_stream import answers, assert_is, converse, in_bytes, start

NAMES = ["agent", "caller"]


def call_of(recordings: Recordings, *numbers: int) -> np.ndarray:
    """A call in which these recordings are the channels: (n, channels) int16."""
    channels = [recordings[number][1] for number in numbers]
    length = max(map(len, channels))
    return np.stack([np.pad(each, (0, length - len(each))) for each in channels], axis=1)


def of_channel(messages: list[dict[str, Any]], channel: int) -> list[dict[str, Any]]:
    kinds = ("started", "final", "ended")
    return [
        each
        for each in messages
        if each["type"] in kinds and each.get("channel", channel) == channel
    ]


def test_each_channel_is_what_it_would_be_alone(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    call = call_of(recordings, 1, 2)
    messages = converse(start(address, channels=2, speakers=NAMES), in_bytes(call, 0))
    for channel, name in enumerate(NAMES):
        own = of_channel(messages, channel)
        assert_is(own, served.transcribe(call[:, channel]), len(call))
        assert {each["speaker"] for each in own[1:-1]} == {name}
        with pytest.raises(AssertionError):  # control: the other one
            assert_is(own, served.transcribe(call[:, 1 - channel]), len(call))


def test_a_commit_is_for_all_channels(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    call = call_of(recordings, 0, 1)
    half = len(call) // 2
    parts = [call[:half].tobytes(), '{"type": "commit"}', call[half:].tobytes()]
    messages = converse(start(address, channels=2), parts)
    for channel in range(2):
        texts = [each["text"] for each in of_channel(messages, channel)[1:-1]]
        alone = [served.transcribe(part[:, channel]).text for part in (call[:half], call[half:])]
        assert " ".join(texts).split() == " ".join(alone).split()


def test_channels_are_streams(served: Recognizer) -> None:
    """They count against the limits, and a call that is refused takes none."""
    server = Server({"m": served}, Limits(streams=2))
    with serving(server) as address:
        (message,) = answers(start(address, channels=3))
        assert (message["reason"], server.streams) == ("streams", 0)
        with start(address, channels=2) as client:
            names = json.loads(client.recv(timeout=10))
            assert (names["type"], server.streams) == ("started", 2)
        with connected(f"ws://{address}/v1/stream") as client:
            resume = {"type": "resume", "id": names["id"], "token": names["token"], "finals": 3}
            client.send(json.dumps(resume))
            text = json.loads(client.recv(timeout=10))["message"]
            assert text == "finals: expected 2 numbers, got 3"


def test_states_as_bytes() -> None:
    saved = SavedCall(b"ab\nc", 5, 1), SavedCall(b"\nd", 5, 1)
    value = SuspendedCall(Start(type="start", channels=2), saved)
    data = resumption.to_bytes(value, b"k" * 32, "n")
    assert resumption.from_bytes(data, b"k" * 32, "n") == value


def test_listen_prints_what_stream_prints(
    served: Recognizer, address: str, recordings: Recordings, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """However often the connection is cut, the segments of each channel are those of it alone."""
    call = call_of(recordings, 1, 2)
    soundfile.write(tmp_path / "call.wav", call, 16000)
    with cutting(address, cuts=4, seed=1, most=24_000) as cutter:
        options = ["--channel", "split", "--format", "jsonl"]
        assert run("listen", f"http://{cutter.address}", tmp_path / "call.wav", *options) == 0
        assert cutter.done == 5
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for channel, name in enumerate(["channel 0", "channel 1"]):
        own = [each for each in lines if (each["channel"], each["speaker"]) == (channel, name)]
        finals = [(each["text"], each["start"]) for each in own if each["type"] == "final"]
        expected = served.transcribe(call[:, channel]).segments
        assert finals == [(each.text, each.spoken) for each in expected]


def test_no_audio_is_acknowledged_before_it_is_saved(served: Recognizer, tmp_path: Path) -> None:
    """Not even while a channel has ended, and texts of the other one are still written."""
    has_ended, sent = asyncio.Event(), list[dict[str, Any]]()

    class Ended:
        received = 100

        def __init__(self, *updates: CallUpdate) -> None:
            self.updates = [*updates]

        async def next_update(self) -> CallUpdate | None:
            return self.updates.pop(0) if self.updates else None

    class Line:
        async def send(self, message: str) -> None:
            sent.append(json.loads(message))
            await has_ended.wait()

    async def main() -> None:
        server = Server({"m": served}, store=SqliteStore(tmp_path / "calls", 60.0))
        talk: Any = ResumableConversation(Line(), server, dialect := AsrkitStream())  # type: ignore[arg-type]
        talk.last = SuspendedCall(Start(type="start", channels=2))
        dialect.begin(talk.last)
        talk.calls = [Ended(), Ended(update(segment("one"), segment("two"), is_final=True))]
        writer = asyncio.ensure_future(talk.write(1, talk.calls[1]))
        await asyncio.sleep(0)
        await talk.write(0, talk.calls[0])
        has_ended.set()
        await writer
        server.close()

    asyncio.run(main())
    assert [(each["text"], each["ack"]) for each in sent] == [("one", 0), ("two", 0)]
