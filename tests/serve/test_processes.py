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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest
from websockets.sync.client import ClientConnection

import asrkit
from asrkit.pretrained import ready_models
from asrkit.serve.metrics import METRICS_DIR, Figures, is_alive
from asrkit.serve.server import Server
from asrkit.serve.store import MEMORY, SqliteStore, StoredCall
from tests.conftest import PROJECT
from tests.running import wait_until
from tests.serve.running import Recordings, serving
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
            assert len(server.calls) == 1
            store.asked.clear()
            store.answers.clear()
            client.send(bytes(32_000))
        assert store.asked.wait(10)  # it saves the call
        assert len(server.calls) == 0
        store.answers.set()


def test_the_process_of_another_user_is_not_one_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert is_alive(os.getpid())
    monkeypatch.setattr(os, "kill", Mock(side_effect=PermissionError))
    assert not is_alive(os.getpid())


def test_two_processes_remove_the_figures_of_a_dead_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are asked for the metrics at once, and find the same file."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    file = tmp_path / f"gauge_livesum_{dead.pid}.db"
    file.touch()
    monkeypatch.setenv(METRICS_DIR, str(tmp_path))
    removed, remove = list[str](), os.remove

    def late(path: str) -> None:
        removed.append(path)
        remove(path)
        remove(path)

    monkeypatch.setattr(os, "remove", late)
    assert Figures().exposition() == b""
    assert removed == [str(file)]


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
def test_a_process_that_does_not_start_keeps_the_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end with the one that has started them, even if it is killed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    model = tmp_path / "m.safetensors"
    model.write_bytes(ready_models()["small-en-alnum"].read_bytes())
    command = ("-m", "asrkit", "serve", "--workers", "2", "--port", "0", "--streams", "5")
    with running(*command, "--model", str(model), err=subprocess.PIPE) as process:
        address = address_of(process)
        url = f"http://{address}/healthz"
        assert httpx.get(url, timeout=60).text == "ok\n"
        figures = "asrkit-serve-*/metrics/gauge_live*.db"  # of a process that has loaded the model
        wait_until(lambda: len([*tmp_path.glob(figures)]) == 2, 60)
        model.rename(tmp_path / "elsewhere")
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        while "keeping worker" not in (line := process.stderr.readline()):
            assert line, process.poll()
        assert httpx.get(url, timeout=60).text == "ok\n"
        process.kill()
        assert is_refused(address)


class PatientCaller(Caller):
    """A client that sends the second half of its samples once all processes are replaced."""

    replaced: threading.Event

    def send(self, client: ClientConnection, end: int) -> None:
        super().send(client, end // 2)
        while not self.replaced.wait(0.1):
            client.send(b"")  # an error once the process has ended
        super().send(client, end)


def workers_of(process: subprocess.Popen[str]) -> set[int]:
    """The processes that serve."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return {pid for pid, command in commands.items() if b"spawn_main" in command}


@pytest.mark.slow
def test_calls_go_on_while_processes_end(recordings: Recordings) -> None:
    """Both are killed, one while it does not answer, and then replaced; no text changes."""
    command = ("-m", "asrkit", "serve", "--workers", "2", "--port", "0", "--save-seconds", "1")
    options = ("--streams", "60", "--endpoint-ms", "400", "--log", "json")
    recognizer = asrkit.load(
        "small-en-alnum", endpointer=asrkit.Endpointer(400), second_pass="full"
    )
    with running(*command, *options, err=subprocess.PIPE) as process:
        address = address_of(process)

        def ended(*processes: int) -> None:
            """Wait until others serve in place of these processes."""
            wait_until(lambda: len(workers_of(process) - {*processes}) == 2, 50)
            wait_until(lambda: not workers_of(process) & {*processes}, 50)

        def calls() -> float:
            """Return the number of calls of all processes."""
            text = httpx.get(f"http://{address}/metrics", timeout=50).text
            found = re.search(r"^asrkit_streams{.*} (.+)$", text, re.M)
            assert found is not None, text
            return float(found[1])

        ended()
        first, second = workers_of(process)
        samples = [whole(recordings, number)[0] for number in range(6)]
        callers = [PatientCaller([address], each, pause=0.05) for each in samples]
        PatientCaller.replaced = threading.Event()
        with ThreadPoolExecutor(len(callers)) as pool, ExitStack() as stack:
            stack.callback(PatientCaller.replaced.set)
            talking = [pool.submit(caller.talk) for caller in callers]
            wait_until(lambda: all(caller.acked for caller in callers), 100)
            os.kill(first, signal.SIGSTOP)
            time.sleep(2)  # uvicorn waits for its answer, at most for a minute
            for each in (first, second):
                os.kill(each, signal.SIGKILL)
                ended(each)
            before = workers_of(process)
            # A caller that is between two processes would not be interrupted.
            wait_until(lambda: calls() == len(callers), 100)
            process.send_signal(signal.SIGHUP)
            ended(*before)
            stack.close()
            heard = [each.result(timeout=200) for each in talking]
        wait_until(lambda: calls() == 0, 50)
    for messages, each in zip(heard, samples, strict=True):
        assert_is(messages, recognizer.transcribe(each), len(each))
    assert all(caller.resumes >= 3 for caller in callers)  # else nothing was interrupted
