"""Calls outlive their connections. Their store: private, bounded, authentic, not waited for."""

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from websockets.frames import Close, Frame, Opcode
from websockets.sync.client import connect

from asrkit.errors import UserError
from asrkit.runtime import Recognizer
from asrkit.serve.resumption import name_of
from asrkit.serve.server import Limits, Server
from asrkit.serve.store import SqliteStore, StoredCall
from tests.running import wait_until
from tests.serve.running import Recordings, serving
from tests.serve.test_client import cutting
from tests.serve.test_restart import Caller
from tests.serve.test_stream import answers, assert_is, start

KEY = b"k" * 16


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_only_the_owner_reads_calls_also_in_a_file_that_existed(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    path.touch(0o644)
    path.chmod(0o644)
    store = SqliteStore(path, 60.0)
    store.put("a", StoredCall(0, b"text"))
    store.take("a")
    files = sorted(tmp_path.iterdir())
    assert (len(files), {mode(each) for each in files}) == (3, {0o600})  # with SQLite's own
    assert b"text" in b"".join(each.read_bytes() for each in files)  # control: the text is there


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "song.wav").write_bytes(b"RIFF" * 100)
    with pytest.raises(UserError, match=r"song\.wav cannot hold calls: file is not a database"):
        SqliteStore(tmp_path / "song.wav", 60.0)


def talked(server: Server, address: str, samples: np.ndarray) -> Caller:
    """A client that has talked and lost its connection."""
    caller = Caller([address], samples, 0.0)
    client = caller.connected()
    caller.send(client, len(samples))
    wait_until(lambda: any(call.seconds * 16001 > len(samples) for call in server.calls), 60.0)
    client.socket.close()
    wait_until(lambda: not server.resumable)
    return caller


def resumed(address: str, caller: Caller, **more: object) -> dict[str, object]:
    with connect(f"ws://{address}/v1/stream") as client:
        client.send(json.dumps(caller.first | more))
        answer: dict[str, object] = json.loads(client.recv(timeout=10))
        return answer


def test_a_saved_call_that_is_swapped_or_older_is_refused(
    served: Recognizer, recordings: Recordings, tmp_path: Path
) -> None:
    path, samples = tmp_path / "calls", recordings[0][1]
    store = SqliteStore(path, 60.0)
    limits = Limits(save_s=0.05)
    server = Server({"m": served}, limits, store=SqliteStore(path, 60.0), key=KEY)
    with serving(server) as one:
        mine, other = (talked(server, one, samples) for _ in range(2))
        names = [name_of(str(each.first["id"]), str(each.first["token"])) for each in (mine, other)]
        first, second = map(store.take, names)
        assert first is not None
        assert second is not None
        assert store.put(names[0], second)
        assert store.put(names[1], first)
        for caller in (mine, other):
            assert "another call" in str(resumed(one, caller)["message"])
        for name, entry in zip(names, (first, second), strict=True):  # as they were
            assert store.put(name, entry._replace(generation=9))
        # The client has an ack of a newer state, such as one from before a backup.
        assert resumed(one, mine, ack=len(samples) + 1)["reason"] == "stale"
        assert resumed(one, other)["ack"] == len(samples)  # control


def test_a_client_that_fills_a_file_loses_its_own_short_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever process has written them."""
    monkeypatch.setattr("asrkit.serve.store.MOST_ENTRIES", 50)
    one, other = (SqliteStore(tmp_path / "calls", 60.0, most=100_000) for _ in range(2))
    assert one.put("other", StoredCall(0, bytes(3000), "192.0.2.2", 0.1))
    assert other.put("long", StoredCall(0, bytes(4000), "192.0.2.1", 60.0))
    assert all(other.put(f"{i}", StoredCall(0, bytes(4000), "192.0.2.1", 0.5)) for i in range(60))
    with pytest.raises(OSError, match="has no room for another call"):
        other.put("largest", StoredCall(0, bytes(99_000), "192.0.2.1", 0.1))
    assert one.take("other")
    assert sum(one.take(f"{i}") is not None for i in range(60)) < 25
    assert one.take("long")


def held(path: Path) -> Callable[[], None]:
    """Hold a file's lock, as a process that is stopped; returns what releases it."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("BEGIN IMMEDIATE")
    return db.close


def test_a_held_lock_stops_no_new_calls_and_readyz_says_so(
    served: Recognizer, recordings: Recordings, tmp_path: Path
) -> None:
    path, samples = tmp_path / "calls", recordings[0][1]
    store = SqliteStore(path, 60.0)
    with serving(Server({"m": served}, Limits(save_s=0.2), store=store, key=KEY)) as address:
        assert httpx.get(f"http://{address}/readyz").status_code == 200
        release = held(path)
        try:
            Caller([address], samples, 0.0).talk()  # notes that the store does not answer
            started = time.monotonic()
            Caller([address], samples, 0.0).talk()
            assert time.monotonic() - started < 20.0
            answer = httpx.get(f"http://{address}/readyz")
            assert (answer.status_code, "not saved" in answer.text) == (503, True)
            assert httpx.get(f"http://{address}/healthz").status_code == 200
        finally:
            release()
        wait_until(lambda: httpx.get(f"http://{address}/readyz").status_code == 200)


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
    assert len(server.calls) == 0
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
        wait_until(lambda: not server.calls and not server.resumable)
        other = start(address)
        other.send(samples.tobytes())
        other.recv(timeout=10)
        for _ in range(2):
            assert resumed(address, caller, finals=caller.finals())["reason"] == "streams"
        other.close()
        wait_until(lambda: len(server.calls) == 0)
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
