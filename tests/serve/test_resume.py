"""Calls outlive their connections: nothing is lost, nothing comes twice, times go on."""

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest
from websockets.frames import Close, Frame, Opcode
from websockets.sync.client import connect

from asrkit.runtime import Recognizer
from asrkit.serve.server import Limits, Server
from tests.running import wait_until
from tests.serve.running import Recordings, serving
from tests.serve.test_client import cutting
from tests.serve.test_restart import Caller
from tests.serve.test_store import resumed
from tests.serve.test_stream import answers, assert_is, start


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
    caller = Caller([address], samples, 0.0)
    first, second = caller.connected(), caller.connected()
    told = [json.loads(first.recv(timeout=10))]
    while told[-1]["type"] != "error":
        told.append(json.loads(first.recv(timeout=10)))
    assert told[-1]["reason"] == "moved"
    second.send(samples.tobytes())
    second.send('{"type": "end"}')
    assert_is([*caller.messages, *answers(second)], served.transcribe(path), len(samples))


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
        caller = Caller([address], samples, 0.0)
        socket = caller.connected()
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
        with connect(f"ws://{address}/v1/stream") as back:
            back.send(json.dumps(caller.first))
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
        caller = Caller([address], samples, 0.0)
        socket = caller.connected()
        caller.send(socket, len(samples) // 2)
        caller.messages.append(json.loads(socket.recv(timeout=10)))
        socket.socket.close()
        wait_until(lambda: not server.streams and not server.resumable)
        other = start(address)
        other.send(samples.tobytes())
        other.recv(timeout=10)
        for _ in range(2):
            assert resumed(address, caller, finals=caller.finals())["reason"] == "streams"
        other.close()
        wait_until(lambda: server.streams == 0)
        back = caller.connected()
        assert caller.sent > 0
        caller.send(back, len(samples))
        back.send('{"type": "end"}')
        assert_is([*caller.messages, *answers(back)], served.transcribe(path), len(samples))


def test_who_may_not_and_who_is_too_late(
    served: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server({"m": served})
    with serving(server) as address:
        caller = Caller([address], np.zeros(0, np.int16), 0.0)
        socket = caller.connected()
        for wrong in ({"token": "x"}, {"id": "x"}, {"token": "ü"}):
            assert resumed(address, caller, **wrong)["reason"] == "unknown"
        socket.socket.close()
        caller.connected().socket.close()  # control
        wait_until(lambda: not server.resumable)
        later = time.time() + server.limits.resume_s + 1
        monkeypatch.setattr("asrkit.serve.store.time", SimpleNamespace(time=lambda: later))
        assert resumed(address, caller)["reason"] == "unknown"
