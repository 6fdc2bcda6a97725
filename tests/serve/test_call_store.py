"""The store of calls: private, bounded, authentic, and never waited for."""

import asyncio
import fcntl
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
from websockets.sync.client import connect

from asrkit.errors import UserError
from asrkit.runtime import Recognizer
from asrkit.serve.async_store import AsyncStore
from asrkit.serve.call_store import FolderStore, MemoryStore, StoredCall
from asrkit.serve.server import Limits, Server
from tests.serve.running import serving
from tests.serve.test_restart import Caller

Recordings = list[tuple[Path, np.ndarray]]
KEY = b"k" * 16


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_only_the_owner_reads_calls_also_in_a_folder_that_existed(tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    (folder / "key").write_bytes(b"")
    (folder / "key").unlink()
    store = FolderStore(folder, 60.0)
    seen = []

    def watched(path: Path) -> None:
        seen.extend(mode(each) for each in path.iterdir() if each.name not in ("lock",))

    store.put("a", StoredCall(0, b"text"))
    store.key()
    store.take("a")
    watched(folder)
    assert (mode(folder), set(seen)) == (0o700, {0o600})


def test_a_folder_with_other_files_that_others_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "song.wav").write_bytes(b"")
    tmp_path.chmod(0o755)
    with pytest.raises(UserError, match=r"song\.wav.*chmod 700"):
        FolderStore(tmp_path, 60.0)
    assert mode(tmp_path) == 0o755
    tmp_path.chmod(0o700)
    FolderStore(tmp_path, 60.0)


@pytest.mark.parametrize("size", [0, 15])
def test_a_key_file_that_is_empty_or_short_is_refused(tmp_path: Path, size: int) -> None:
    store = FolderStore(tmp_path / "calls", 60.0)
    (tmp_path / "calls/key").write_bytes(bytes(size))
    with pytest.raises(UserError, match=f"{size} bytes"):
        store.key()


@pytest.mark.parametrize("key", [b"", b"short"])
def test_a_server_takes_no_key_that_can_be_guessed(served: Recognizer, key: bytes) -> None:
    with pytest.raises(UserError, match="16 bytes"):
        Server({"m": served}, key=key)


def talked(address: str, samples: np.ndarray, calls: int) -> list[Caller]:
    """Clients that have talked and lost their connections."""
    callers = [Caller([address], samples, 0.0) for _ in range(calls)]
    for caller in callers:
        client = caller.connected()
        caller.send(client, len(samples))
        time.sleep(0.3)
        client.socket.close()
    time.sleep(0.5)
    return callers


def resumed(address: str, caller: Caller, **more: object) -> dict[str, object]:
    with connect(f"ws://{address}/v1/stream") as client:
        client.send(json.dumps(caller.first | more))
        answer: dict[str, object] = json.loads(client.recv(timeout=10))
        return answer


def test_a_saved_call_that_is_swapped_or_replayed_is_refused(
    served: Recognizer, recordings: Recordings, tmp_path: Path
) -> None:
    folder, samples = tmp_path / "calls", recordings[0][1]
    limits = Limits(save_s=0.05)
    with serving(Server({"m": served}, limits, store=FolderStore(folder, 60.0), key=KEY)) as one:
        mine, other = talked(one, samples, 2)
        files = sorted(folder.glob("*.call"))
        early = {path: path.read_bytes() for path in files}
        files[0].write_bytes(early[files[1]])
        files[1].write_bytes(early[files[0]])
        for caller in (mine, other):
            assert "another call" in str(resumed(one, caller)["message"])
        for path, data in early.items():  # as they were
            path.write_bytes(data)
        assert resumed(one, mine)["ack"] == len(samples)  # which makes a new generation
        time.sleep(0.5)
        for path, data in early.items():
            path.write_bytes(data)  # replayed
        assert resumed(one, mine)["reason"] == "stale"
        for path, data in early.items():  # with a head that says it is a later one
            path.write_bytes((9).to_bytes(8, "big") + data[8:])
        assert resumed(one, mine)["reason"] == "stale"
        assert resumed(one, other)["ack"] == len(samples)  # control: its own newest state
    with serving(Server({"m": served}, limits, store=FolderStore(folder, 60.0), key=KEY)) as two:
        # A process that has not seen the newer state believes the client.
        assert resumed(two, other, ack=len(samples) + 1)["reason"] == "stale"


def test_a_flood_of_short_calls_pushes_no_long_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asrkit.serve.call_store.MOST_MEMORY", 10_000)
    store = MemoryStore(60.0)
    store.put("long", StoredCall(0, bytes(500), "a", 60.0))
    store.put("of another", StoredCall(0, bytes(500), "b", 0.1))
    for i in range(1000):
        store.put(str(i), StoredCall(0, bytes(500), "a", 0.5))
    assert store.take("long") is not None
    assert store.take("of another") is not None
    assert store._shares.size <= 10_000


def test_a_client_that_fills_a_folder_loses_its_own_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asrkit.serve.call_store.MOST_ENTRIES", 50)
    store = FolderStore(tmp_path, 60.0, most=100_000)
    for i in range(10):
        assert store.put(f"other {i}", StoredCall(0, bytes(3000), "192.0.2.2", 1.0))
    for i in range(500):
        with suppress(OSError):
            store.put(f"flood {i}", StoredCall(0, bytes(100 + 4000 * (i % 2)), "192.0.2.1", 0.5))
    assert store.put("new", StoredCall(0, bytes(100), "192.0.2.3"))
    assert store.put("other 0", StoredCall(0, bytes(4000), "192.0.2.2", 2.0))
    left = [path.stem for path in tmp_path.glob("*.call")]
    assert sum(name.startswith("other") for name in left) == 10
    assert len(left) <= 50
    assert sum(path.stat().st_size for path in tmp_path.glob("*.call")) < 101_000


def test_a_folder_that_other_processes_have_filled_takes_no_more(tmp_path: Path) -> None:
    one, other = (FolderStore(tmp_path, 60.0, most=10_000) for _ in range(2))
    assert other.put("mine", StoredCall(0, bytes(1000)))
    for i in range(9):
        assert one.put(str(i), StoredCall(0, bytes(1000)))
    other.sweep()
    with pytest.raises(OSError, match="has no room for another call"):
        other.put("new", StoredCall(0, bytes(2000)))
    assert other.put("mine", StoredCall(0, bytes(1500)))  # one that is there is written on
    assert len(list(tmp_path.glob("*.call"))) == 10


def held(folder: Path) -> Callable[[], None]:
    """Hold a folder's lock, as a process that is stopped; returns what releases it."""
    file = open(folder / "lock", "ab")  # noqa: SIM115
    fcntl.flock(file, fcntl.LOCK_EX)
    return file.close


def test_a_held_lock_stops_no_new_calls_and_readyz_says_so(
    served: Recognizer, recordings: Recordings, tmp_path: Path
) -> None:
    folder, samples = tmp_path / "calls", recordings[0][1]
    store = FolderStore(folder, 60.0)
    with serving(Server({"m": served}, Limits(save_s=0.2), store=store, key=KEY)) as address:
        assert httpx.get(f"http://{address}/readyz").status_code == 200
        release = held(folder)
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
        for _ in range(100):
            if httpx.get(f"http://{address}/readyz").status_code == 200:
                break
            time.sleep(0.1)
        assert httpx.get(f"http://{address}/readyz").status_code == 200


class Hung(MemoryStore):
    """A store on a network that takes everything and answers nothing."""

    survives = True

    def __init__(self) -> None:
        super().__init__(60.0)
        self.answers = threading.Event()
        self.asked = 0

    def put(self, name: str, entry: StoredCall) -> bool:
        self.asked += 1
        self.answers.wait(20)
        return super().put(name, entry)

    def check(self) -> None:
        if not self.answers.is_set():
            raise OSError("no answer")


def test_only_the_first_call_waits_for_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asrkit.serve.async_store.RETRY_S", 0.2)
    store = Hung()

    async def main() -> None:
        kept = AsyncStore(store)
        waits = []
        for _ in range(20):
            started = time.monotonic()
            with pytest.raises(OSError, match="answer"):
                await kept.put("a", StoredCall(0, b""))
            waits.append(time.monotonic() - started)
        assert kept.is_down
        assert sorted(waits)[-2] < 0.25
        assert store.asked == 1
        store.answers.set()
        for _ in range(100):
            await asyncio.sleep(0.05)
            if not kept.is_down:
                break
        assert await kept.put("a", StoredCall(0, b""))
        kept.close()

    asyncio.run(main())


def test_calls_that_are_dropped_at_once_are_written_as_a_few_bytes(
    served: Recognizer, tmp_path: Path
) -> None:
    folder = tmp_path / "calls"
    store = FolderStore(folder, 60.0)
    server = Server({"m": served}, Limits(streams=100, save_s=6000.0), store=store, key=KEY)
    server._keeps = 20.0
    with serving(server) as address:
        for _ in range(60):
            with connect(f"ws://{address}/v1/stream") as client:
                client.send('{"type": "start"}')
                assert json.loads(client.recv(timeout=10))["type"] == "started"
                client.send(bytes(32_000))
        time.sleep(1.0)
        sizes = sorted(path.stat().st_size for path in folder.glob("*.call"))
    assert len(sizes) == 60
    assert sizes[60 - 22] < 1000 < sizes[-1]  # but for those that may be written at once
