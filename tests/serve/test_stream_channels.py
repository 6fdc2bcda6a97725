"""/v1/stream with several channels: each has what its samples have alone, whatever happens."""

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from websockets.sync.client import ClientConnection

from asrkit.errors import UserError
from asrkit.runtime import Recognizer
from asrkit.serve import resumption
from asrkit.serve.calls import CallUpdate, SavedCall
from asrkit.serve.converse import Append, Begin, Conversation, Dialect, Finish
from asrkit.serve.converse import converse as serve_line
from asrkit.serve.dialects.asrkit_stream import AsrkitStream
from asrkit.serve.dialects.messages import Start
from asrkit.serve.resumable import ResumableConversation
from asrkit.serve.resumption import SuspendedCall
from asrkit.serve.server import Limits, Server, Wish
from asrkit.serve.store import SqliteStore
from tests.running import run
from tests.serve.offline import segment, update
from tests.serve.running import serving
from tests.serve.test_client import cutting
from tests.serve.test_resume import Client
from tests.serve.test_stream import answers, assert_is, converse, in_bytes, start

Recordings = list[tuple[Path, np.ndarray]]
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


@pytest.mark.parametrize("seed", range(2))
def test_each_channel_is_what_it_would_be_alone(
    address: str, served: Recognizer, recordings: Recordings, seed: int
) -> None:
    call = call_of(recordings, seed, 2)
    messages = converse(start(address, channels=2, speakers=NAMES), in_bytes(call, seed))
    for channel, name in enumerate(NAMES):
        own = of_channel(messages, channel)
        assert_is(own, served.transcribe(call[:, channel]), len(call))
        assert {each["speaker"] for each in own[1:-1]} == {name}
        with pytest.raises(AssertionError):  # control: the other one
            assert_is(own, served.transcribe(call[:, 1 - channel]), len(call))


class Caller(Client):
    """A client of two channels that loses its connection now and then."""

    def open(self, first: dict[str, Any]) -> ClientConnection:
        more = {"channels": 2} if first["type"] == "start" else {}
        return super().open({**first, **more})

    def finals(self) -> list[int]:  # type: ignore[override]
        found = [each["channel"] for each in self.messages if each["type"] == "final"]
        return [found.count(0), found.count(1)]


MANY = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12)]


@pytest.mark.parametrize("seed", [0, *MANY])
def test_cut_anywhere(address: str, served: Recognizer, recordings: Recordings, seed: int) -> None:
    call = call_of(recordings, seed % 3, 3)
    client = Caller(address, call, random.Random(seed))
    messages = client.talk(cuts=6)
    for channel in range(2):
        expected = served.transcribe(call[:, channel])
        assert_is(of_channel(messages, channel), expected, len(call))
    assert client.resumes >= 6


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
        assert (message["type"], message["reason"]) == ("error", "streams")
        assert server.streams == 0
        with start(address, channels=2) as client:
            assert json.loads(client.recv(timeout=10))["type"] == "started"
            assert server.streams == 2


def test_who_resumes_names_a_number_for_each_channel(address: str, recordings: Recordings) -> None:
    client = Caller(address, call_of(recordings, 0, 1), random.Random(0))
    client.open({"type": "start"}).socket.close()
    names = {name: client.started[name] for name in ("id", "token")}
    client.open({"type": "resume", "finals": 3, **names})
    assert client.started["message"] == "finals: expected 2 numbers, got 3"


@pytest.mark.parametrize("sessions", [(b"ab\nc",), (b"ab\nc", b"\nd")])
def test_states_as_bytes(sessions: tuple[bytes, ...]) -> None:
    value = SuspendedCall(Start(type="start"), tuple(SavedCall(each, 5, 1) for each in sessions))
    data = resumption.to_bytes(value, b"k" * 32, "n")
    assert resumption.from_bytes(data, b"k" * 32, "n") == value


def test_listen_prints_what_stream_prints(
    served: Recognizer, address: str, recordings: Recordings, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """However often the connection is cut, the segments of each channel are those of it alone."""
    call = call_of(recordings, 1, 2)
    soundfile.write(tmp_path / "call.wav", call, 16000)
    with cutting(address, cuts=2, seed=1) as cutter:
        options = ["--channel", "split", "--format", "jsonl"]
        assert run("listen", f"http://{cutter.address}", tmp_path / "call.wav", *options) == 0
        assert cutter.done == 3
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


class Two(Dialect):
    """Two calls, of which one fails to be written."""

    def __init__(self, failing: int | None) -> None:
        self.failing, self.done = failing, list[int | str]()

    def open(self) -> Iterator[Any]:
        yield Begin(Wish(), 16000, 2)
        yield Append(np.zeros((16000, 2), np.int16))
        yield Finish()

    def write(self, channel: int, update: CallUpdate | None) -> list[str]:
        if channel == self.failing:
            raise UserError("written")
        if update is not None and update.is_final:
            self.done.append(channel)
        return []

    def ended(self) -> list[str]:
        self.done.append("end")
        return []

    def error(self, reason: str, text: str) -> str:
        return f"{reason}: {text}"


class Quiet:
    """A client that sends nothing."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def receive(self) -> str:
        await asyncio.Event().wait()
        return ""

    async def send(self, message: str) -> None:
        self.sent.append(message)

    async def close(self, code: int, why: str) -> None:
        self.sent.append(f"{code} {why}")


@pytest.mark.parametrize("failing", [0, 1, None])
def test_the_end_follows_all_channels_or_none(served: Recognizer, failing: int | None) -> None:
    dialect, line, server = Two(failing), Quiet(), Server({"m": served})

    async def main() -> None:
        await serve_line(Conversation(line, server, dialect))
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    server.close()
    assert server.streams == 0
    assert line.sent == (["1000 "] if failing is None else ["request: written", "1008 written"])
    if failing is None:
        assert (sorted(dialect.done[:-1]), dialect.done[-1]) == ([0, 1], "end")
    else:
        assert "end" not in dialect.done
