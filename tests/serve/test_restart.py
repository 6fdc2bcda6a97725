"""Calls outlive the process: another one that shares its store goes on with them."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidMessage
from websockets.sync.client import ClientConnection

import asrkit
from asrkit.runtime import Recognizer
from asrkit.serve.server import Limits, Server
from asrkit.serve.store import MEMORY, RedisStore, SqliteStore, Store, StoredCall
from tests.conftest import PROJECT
from tests.running import free_ports, wait_until
from tests.serve.running import Recordings, connected, listening, serving
from tests.serve.test_stream import assert_is

PACKET = 1600


def running_redis(port: int) -> AbstractContextManager[None]:
    """A context manager of a Redis of our own."""
    pytest.importorskip("redis")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    return listening([program, "--port", str(port), "--save", "", "--bind", "127.0.0.1"], port)


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    """The address of a Redis of our own."""
    (port,) = free_ports(1)
    with running_redis(port):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(params=["memory", "file", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of each kind; that of a test of the time removes entries after a second."""
    seconds = 1.0 if "for_a_while" in request.node.name else 60.0
    if request.param == "redis":
        return RedisStore(request.getfixturevalue("redis"), seconds)
    return SqliteStore(MEMORY if request.param == "memory" else tmp_path / "a/calls", seconds)


def test_who_takes_an_entry_owns_it(store: Store) -> None:
    assert store.take("a") is None
    assert store.put("a", StoredCall(0, b"one\0"))
    assert store.put("a", StoredCall(0, b"two"))
    assert store.take("a") == StoredCall(1, b"two")
    assert not store.put("a", StoredCall(0, b"late"))  # by the one that had it before
    store.drop("a", 0)
    assert store.put("a", StoredCall(1, b"three"))
    assert store.take("a") == StoredCall(2, b"three")
    assert store.take("a") == StoredCall(3, b"three")
    store.drop("a", 3)
    assert store.take("a") is None


def test_a_late_write_of_less_audio_replaces_no_newer_one(store: Store) -> None:
    assert store.put("late", StoredCall(0, b"new", seconds=10.5))
    assert not store.put("late", StoredCall(0, b"late", seconds=9.5))
    assert store.put("late", StoredCall(1, b"newest", seconds=0.0))
    assert store.take("late") == StoredCall(2, b"newest")


def test_entries_are_kept_for_a_while(store: Store) -> None:
    assert store.put("a", StoredCall(0, b"1"))
    assert store.take("a")
    wait_until(lambda: not store.take("a"))
    assert store.put("b", StoredCall(0, b"2"))
    store.sweep()
    assert (store.take("a"), store.take("b")) == (None, StoredCall(1, b"2"))


def test_a_store_that_cannot_be_reached_is_no_end_of_a_call(
    served: Recognizer, recordings: Recordings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path / "calls/calls", 60.0)
    with serving(Server({"m": served}, Limits(save_s=0.05), store=store)) as address:
        path, samples = recordings[0]
        caller = Caller([address], samples, pause=0.002)
        shutil.rmtree(tmp_path / "calls")
        assert_is(caller.talk(), served.transcribe(path), len(samples))
    assert "could not be saved" in caplog.text


def test_a_redis_that_goes_away_and_comes_back_is_no_end_of_a_call(
    served: Recognizer, recordings: Recordings, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes back empty, and the client then loses its connection."""
    (port,), (samples, size), first = free_ports(1), whole(recordings, 0), ExitStack()
    with first:
        first.enter_context(running_redis(port))
        store = RedisStore(f"redis://127.0.0.1:{port}/0", 60.0)
        server = Server({"m": served}, Limits(save_s=0.05), store=store, key=b"k" * 16)
        with serving(server) as address:
            caller = Caller([address], samples, pause=0.002)
            client = caller.connected()
            caller.send(client, size // 4)
            first.close()
            caller.send(client, size // 2)
            wait_until(lambda: "could not be saved" in caplog.text)
            # Also where nobody calls: a store that refuses connections does not answer.
            wait_until(lambda: httpx.get(f"http://{address}/readyz").status_code == 503)
            with running_redis(port):
                wait_until(lambda: httpx.get(f"http://{address}/readyz").status_code == 200)
                caller.send(client, size * 3 // 4)
                caller.listen(client, timeout=1.0)
                client.socket.close()
                assert_is(caller.talk(), served.transcribe(samples), size)
            assert caller.resumes == 1


class Caller:
    """A client that keeps what is not acknowledged, and comes back to any address it knows.

    Args:
        addresses: host and port of servers that share a store, tried in turn.
        samples: to send.
        pause: seconds between two packets.
    """

    def __init__(self, addresses: list[str], samples: np.ndarray, pause: float) -> None:
        self.addresses, self.samples, self.pause = addresses, samples, pause
        self.messages: list[dict[str, Any]] = []
        self.first: dict[str, Any] = {"type": "start"}
        self.acked = self.resumes = self.sent = 0

    def connected(self) -> ClientConnection:
        for i in range(600):
            with suppress(OSError, ConnectionClosed, EOFError, InvalidMessage):
                client = connected(f"ws://{self.addresses[i % len(self.addresses)]}/v1/stream")
                more = {"finals": self.finals()} if self.messages else {}
                client.send(json.dumps(self.first | more))
                started = json.loads(client.recv(timeout=20))
                assert started["type"] == "started", started
                if not self.messages:
                    self.messages.append(started)
                    self.first = {key: started[key] for key in ("id", "token")}
                    self.first["type"] = "resume"
                assert started["ack"] >= self.acked, "the server asks for what is not kept any more"
                self.sent = started["ack"]
                return client
            time.sleep(0.1)
        raise TimeoutError("no server answers")

    def finals(self) -> int:
        return sum(each["type"] == "final" for each in self.messages)

    def talk(self) -> list[dict[str, Any]]:
        """All messages of a call, but partial ones."""
        while not (self.messages and self.messages[-1]["type"] == "ended"):
            client = self.connected()
            listening = threading.Thread(target=self.listen, args=(client,))
            listening.start()
            with suppress(ConnectionClosed):
                self.send(client, len(self.samples))
                client.send('{"type": "end"}')
            listening.join()
            self.resumes += 1
        return self.messages

    def send(self, client: ClientConnection, end: int) -> None:
        while self.sent < end:
            packet = self.samples[self.sent : min(end, self.sent + PACKET)]
            client.send(packet.tobytes())
            self.sent += len(packet)
            time.sleep(self.pause)

    def listen(self, client: ClientConnection, timeout: float | None = None) -> None:
        with suppress(ConnectionClosed, TimeoutError):
            while True:
                message = json.loads(client.recv(timeout))
                self.acked = max(self.acked, message.get("ack", 0))
                if message["type"] != "partial":
                    self.messages.append(message)


def whole(recordings: Recordings, number: int) -> tuple[np.ndarray, int]:
    longer = recordings[:1:-1]
    samples = np.concatenate([longer[(number + i) % len(longer)][1] for i in range(3)])
    return samples, len(samples)


@pytest.mark.parametrize("kind", ["file", "redis"])
def test_processes_share_calls(
    kind: str, request: pytest.FixtureRequest, served: Recognizer, recordings: Recordings,
    tmp_path: Path,
) -> None:  # fmt: skip
    """The client goes from one to the other and back, while the one before still has the call."""

    def server() -> Server:
        path, seconds = tmp_path / "calls", 60.0
        store: Store = SqliteStore(path, seconds)
        if kind == "redis":
            store = RedisStore(request.getfixturevalue("redis"), seconds)
        return Server({"m": served}, Limits(save_s=0.05), store=store, key=b"k" * 16)

    samples, size = whole(recordings, 0)
    with serving(server()) as one, serving(server()) as other:
        caller = Caller([one], samples, pause=0.01)
        kept: list[ClientConnection] = []  # or they would be closed
        for i in range(6):
            client = caller.connected()
            kept.append(client)
            caller.send(client, min(size, caller.sent + size // 6))
            time.sleep(0.2)
            caller.listen(client, timeout=0.0)
            for earlier in kept[-2:-1]:  # its process must not save the call any more
                with suppress(ConnectionClosed):
                    earlier.send(samples[:5120].tobytes())  # a chunk
                    time.sleep(0.2)
            caller.addresses = [one if i % 2 else other]
        assert_is(caller.talk(), served.transcribe(samples), size)
        for client in kept:
            client.socket.close()


class Process:
    """`asrkit serve` as a process of its own."""

    def __init__(self, port: int, folder: Path) -> None:
        self.address = f"127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "asrkit", "serve", "--port", str(port), "--state-dir",
                str(folder), "--save-seconds", "1", "--chunk-ms", "320", "--endpoint-ms", "400",
                "--streams", "60",  # a machine that does other things would measure fewer
            ],
            cwd=PROJECT, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stderr is not None
        assert self.address in self.process.stderr.readline()

    def end(self, how: int) -> str:
        self.process.send_signal(how)
        self.process.wait(timeout=20)
        assert self.process.stderr is not None
        return self.process.stderr.read()


RESTARTS = [
    (signal.SIGKILL, 4),
    pytest.param(signal.SIGKILL, 50, marks=pytest.mark.slow),
    pytest.param(signal.SIGTERM, 50, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("how", "callers"), RESTARTS)
def test_a_restart_in_the_middle(
    how: int, callers: int, recordings: Recordings, tmp_path: Path
) -> None:
    """All texts and times are those of calls that nothing came between."""
    recognizer = asrkit.load(
        "small-en-alnum", chunk_size=8, endpointer=asrkit.Endpointer(400), second_pass="full"
    )
    (port,) = free_ports(1)
    process = Process(port, tmp_path)
    all_samples = [whole(recordings, i)[0] for i in range(callers)]
    each = [
        Caller([process.address], samples, pause=0.2 if callers > 4 else 0.05)
        for samples in all_samples
    ]
    with ThreadPoolExecutor(callers) as pool:
        talking = [pool.submit(caller.talk) for caller in each]
        time.sleep(1.0)
        pairs = [*zip(each, talking, strict=True)]
        while not all(caller.messages or call.done() for caller, call in pairs):
            time.sleep(0.1)  # on a busy machine
        time.sleep(1.0)
        assert process.end(how) == ""
        process = Process(port, tmp_path)
        found = [one.result(timeout=100) for one in talking]
    assert process.end(signal.SIGTERM) == ""
    for messages, samples in zip(found, all_samples, strict=True):
        assert_is(messages, recognizer.transcribe(samples), len(samples))
    assert all(caller.resumes >= 2 for caller in each)
