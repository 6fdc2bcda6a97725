"""Calls outlive their connections: nothing is lost, nothing comes twice, times go on."""

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.frames import Close, Frame, Opcode
from websockets.sync.client import ClientConnection, connect

from asrkit.runtime import Recognizer
from asrkit.serve.server import Limits, Server
from tests.serve.running import Recordings, connected, serving, wait_until
from tests.serve.test_client import cutting
from tests.serve.test_restart import Caller
from tests.serve.test_stream import answers, assert_is


class Client:
    """A client that comes back."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.messages: list[dict[str, Any]] = []

    def open(self, first: dict[str, Any]) -> ClientConnection:
        client = connected(f"ws://{self.address}/v1/stream")
        client.send(json.dumps(first))
        self.started = json.loads(client.recv(timeout=10))
        if not self.messages:
            self.messages.append(self.started)
        return client

    def finals(self) -> int:
        return sum(each["type"] == "final" for each in self.messages)

    def resume(self) -> ClientConnection:
        names = {name: self.started[name] for name in ("id", "token")}
        return self.open({"type": "resume", "finals": self.finals(), **names})


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 25))]
)
def test_cut_anywhere(address: str, served: Recognizer, recordings: Recordings, seed: int) -> None:
    path, samples = recordings[seed % len(recordings)]
    with cutting(address, cuts=8, seed=seed, most=12_000) as cutter:
        caller = Caller([cutter.address], samples, pause=0.01)
        assert_is(caller.talk(), served.transcribe(path), len(samples))
    assert caller.resumes >= 3


def test_another_connection_takes_over(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    """Where the server has not noticed that the first one is dead."""
    path, samples = recordings[1]
    client = Client(address)
    first = client.open({"type": "start"})
    second = client.resume()
    told = [json.loads(first.recv(timeout=10))]
    while told[-1]["type"] != "error":
        told.append(json.loads(first.recv(timeout=10)))
    assert told[-1]["reason"] == "moved"
    second.send(samples.tobytes())
    second.send('{"type": "end"}')
    assert_is([*client.messages, *answers(second)], served.transcribe(path), len(samples))


@pytest.mark.parametrize("code", [1000, 1001, None])
def test_the_last_texts_are_kept_until_the_client_answers_the_close(
    served: Recognizer,
    recordings: Recordings,
    monkeypatch: pytest.MonkeyPatch,
    code: int | None,
) -> None:
    """The answer has the server's code. A client that leaves just then has another, or none."""
    path, samples = recordings[0]
    server = Server({"m": served})
    with serving(server) as address:
        client = Client(address)
        socket = client.open({"type": "start"})
        frame = socket.protocol.send_frame

        def send(each: Frame) -> None:
            if each.opcode is not Opcode.CLOSE:
                frame(each)
            elif code is not None:
                frame(Frame(Opcode.CLOSE, Close(code, "").serialize()))

        monkeypatch.setattr(socket.protocol, "send_frame", send)
        socket.send(samples.tobytes())
        socket.send('{"type": "end"}')
        while json.loads(socket.recv(timeout=10))["type"] != "ended":
            pass
        socket.close() if code else socket.socket.close()
        names = {name: client.started[name] for name in ("id", "token")}
        with connect(f"ws://{address}/v1/stream") as back:
            back.send(json.dumps({"type": "resume", **names}))
            found = [json.loads(back.recv(timeout=10))]
            while found[-1]["type"] not in ("error", "ended"):
                found.append(json.loads(back.recv(timeout=10)))
    assert server.streams == 0
    if code == 1000:
        assert found[0]["reason"] == "unknown"
    else:
        assert_is(found, served.transcribe(path), len(samples))


def test_a_resume_that_finds_the_server_full_keeps_the_call(
    served: Recognizer, recordings: Recordings
) -> None:
    path, samples = recordings[0]
    server = Server({"m": served}, Limits(streams=1))
    with serving(server) as address:
        client = Client(address)
        socket = client.open({"type": "start"})
        socket.send(samples[: len(samples) // 2].tobytes())
        client.messages.append(json.loads(socket.recv(timeout=10)))
        socket.socket.close()
        wait_until(lambda: not server.streams and not server.resumable)
        other = Client(address).open({"type": "start"})
        other.send(samples.tobytes())
        other.recv(timeout=10)
        names = {name: client.started[name] for name in ("id", "token")}
        for _ in range(2):
            rejected = connected(f"ws://{address}/v1/stream")
            rejected.send(json.dumps({"type": "resume", "finals": client.finals(), **names}))
            assert [each["reason"] for each in answers(rejected)] == ["streams"]
        other.close()
        wait_until(lambda: server.streams == 0)
        back = client.open({"type": "resume", "finals": client.finals(), **names})
        assert client.started["ack"] > 0
        back.send(samples[client.started["ack"] :].tobytes())
        back.send('{"type": "end"}')
        assert_is([*client.messages, *answers(back)], served.transcribe(path), len(samples))


def test_who_may_not_and_who_is_too_late(
    served: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server({"m": served})
    with serving(server) as address:
        client = Client(address)
        socket = client.open({"type": "start"})
        resume = {name: client.started[name] for name in ("id", "token")} | {"type": "resume"}
        for wrong in ({"token": "x"}, {"id": "x"}, {"token": "ü"}):
            assert client.open(resume | wrong)
            assert client.started["reason"] == "unknown"
        socket.socket.close()
        client.open(resume).socket.close()
        assert client.started["type"] == "started"  # control
        wait_until(lambda: not server.resumable)
        later = time.time() + server.limits.resume_s + 1
        monkeypatch.setattr("asrkit.serve.store.time", SimpleNamespace(time=lambda: later))
        assert [each["reason"] for each in answers(client.open(resume))] == []
        assert client.started["reason"] == "unknown"
