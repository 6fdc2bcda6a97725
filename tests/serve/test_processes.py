"""Several processes serve one port: all calls have the texts of one process, through restarts."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import asrkit
from asrkit.pretrained import ready_models
from asrkit.serve.server import Server
from asrkit.serve.store import MEMORY, SqliteStore, StoredCall
from tests.conftest import PROJECT
from tests.serve.running import Recordings, serving, wait_until
from tests.serve.test_restart import Caller, whole
from tests.serve.test_stream import assert_is, start


@contextmanager
def running(
    *command: str, out: int | None = None, err: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    process = subprocess.Popen(
        [sys.executable, *command], cwd=PROJECT, stdout=out, stderr=err, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=180)  # uvicorn first replaces all processes, if it has begun to


class SlowStore(SqliteStore):
    """A store whose answers wait for an event."""

    def __init__(self) -> None:
        super().__init__(MEMORY, 60.0)
        self.survives = True
        self.asked, self.answers = threading.Event(), threading.Event()
        self.answers.set()

    def put(self, name: str, entry: StoredCall) -> bool:
        self.asked.set()
        self.answers.wait(20)
        return super().put(name, entry)


def test_the_place_of_a_call_is_free_before_the_store_has_it(served: asrkit.Recognizer) -> None:
    store = SlowStore()
    server = Server({"m": served}, store=store)
    with serving(server) as address:
        with start(address) as client:
            client.recv()
            assert server.streams == 1
            store.asked.clear()
            store.answers.clear()
            client.send(bytes(32_000))
        assert store.asked.wait(10)  # it saves the call
        assert server.streams == 0
        store.answers.set()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    found = re.search(r"http://(127\.0\.0\.1:\d+)/", process.stderr.readline())
    assert found is not None
    return found[1]


def is_refused(address: str, seconds: float = 60.0) -> bool:
    """Whether no process serves an address before this time has passed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            httpx.get(f"http://{address}/healthz", timeout=20)
        except httpx.ConnectError:
            return True
        except httpx.TransportError:  # a process that ends resets its connections
            pass
        time.sleep(0.2)
    return False


@pytest.mark.slow
def test_a_process_that_does_not_start_keeps_the_old_ones(tmp_path: Path) -> None:
    """They end with the one that has started them, even if it is killed."""
    model = tmp_path / "m.safetensors"
    model.write_bytes(ready_models()["small-en-alnum"].read_bytes())
    command = ("-m", "asrkit", "serve", "--workers", "2", "--port", "0", "--streams", "5")
    with running(*command, "--model", str(model), err=subprocess.PIPE) as process:
        address = address_of(process)
        url = f"http://{address}/healthz"
        assert httpx.get(url, timeout=60).text == "ok\n"
        model.rename(tmp_path / "elsewhere")
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        while "keeping worker" not in (line := process.stderr.readline()):
            assert line, process.poll()
        assert httpx.get(url, timeout=60).text == "ok\n"
        process.kill()
        assert is_refused(address)


@pytest.mark.slow
def test_calls_go_on_while_processes_end(recordings: Recordings) -> None:
    """One process is killed and then both are replaced; every text is that of one process."""
    command = ("-m", "asrkit", "serve", "--workers", "2", "--port", "0", "--save-seconds", "1")
    options = ("--streams", "60", "--endpoint-ms", "400", "--log", "json")
    recognizer = asrkit.load(
        "small-en-alnum", endpointer=asrkit.Endpointer(400), second_pass="full"
    )
    with running(*command, *options, err=subprocess.PIPE) as process:
        address = address_of(process)
        assert httpx.get(f"http://{address}/healthz", timeout=120).text == "ok\n"
        time.sleep(10.0)  # the other process begins to serve, too
        samples = [whole(recordings, number)[0] for number in range(6)]
        callers = [Caller([address], each, pause=0.2) for each in samples]
        with ThreadPoolExecutor(len(callers)) as pool:
            talking = [pool.submit(caller.talk) for caller in callers]
            time.sleep(4.0)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
            os.kill(int(next(p for p in children if b"spawn_main" in commands[p])), signal.SIGKILL)
            time.sleep(4.0)
            process.send_signal(signal.SIGHUP)
            heard = [each.result(timeout=200) for each in talking]
        none = b'asrkit_streams{model="small-en-alnum"} 0.0\n'
        wait_until(lambda: none in httpx.get(f"http://{address}/metrics").content)
    for messages, each in zip(heard, samples, strict=True):
        assert_is(messages, recognizer.transcribe(each), len(each))
    assert sum(caller.resumes > 1 for caller in callers) >= 2  # else nothing was interrupted
