"""The store of calls: private, bounded, authentic, and never waited for."""

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from websockets.sync.client import connect

from asrkit.errors import UserError
from asrkit.runtime import Recognizer
from asrkit.serve.resumption import name_of
from asrkit.serve.server import Limits, Server
from asrkit.serve.store import SqliteStore, StoredCall
from tests.running import wait_until
from tests.serve.running import Recordings, serving
from tests.serve.test_restart import Caller

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
