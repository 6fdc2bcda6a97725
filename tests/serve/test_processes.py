"""Several processes serve one port: all calls have the texts of one process, through restarts."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

import asrkit
from asrkit.commands.serve import ports_of, store_of
from asrkit.errors import UserError
from asrkit.serve.processes import Neighbours
from asrkit.serve.server import Limits, RefusedError, Server
from asrkit.serve.store import MEMORY, SqliteStore, StoredCall
from tests.conftest import PROJECT
from tests.serve.running import serving
from tests.serve.test_restart import Caller, Recordings, whole
from tests.serve.test_stream import assert_is, start

SMALL = """
import os, signal, socket, sys, time
from asrkit.serve.processes import Processes

def work(fails, port, neighbours, ready):
    if os.path.exists(fails):
        raise SystemExit(2)
    neighbours.note(1)
    ready.send(None)
    while True:
        client, _ = port.accept()
        client.sendall(f"{os.getpid()} {neighbours.elsewhere()}".encode())
        client.close()

if __name__ == "__main__":
    first = socket.create_server(("127.0.0.1", 0), reuse_port=True)
    ports = [first, socket.create_server(first.getsockname(), reuse_port=True)]
    told = lambda: print(first.getsockname()[1], flush=True)
    sys.exit(Processes(work, (sys.argv[1],), ports).run(told))
"""


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
        process.wait(timeout=60)


def answers(port: int) -> dict[int, int]:
    """Each process that answers on a port, and the calls that it sees elsewhere."""
    found: dict[int, int] = {}
    for _ in range(40):
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            if answer := client.recv(100).split():  # else the process ended before it wrote
                found[int(answer[0])] = int(answer[1])
    return found


def test_processes_are_replaced(tmp_path: Path) -> None:
    script, fails = tmp_path / "small.py", tmp_path / "fails"
    script.write_text(SMALL)
    with running(str(script), str(fails), out=subprocess.PIPE, err=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        port = int(process.stdout.readline())
        first = answers(port)
        assert list(first.values()) == [1, 1]  # both are used, and each knows the other's call

        os.kill(min(first), signal.SIGKILL)
        assert "status -9 and is started again" in process.stderr.readline()
        second = answers(port)
        assert (len(second), len(first.keys() & second.keys())) == (2, 1)

        process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while answers(port).keys() & second.keys() and time.monotonic() < deadline:
            time.sleep(0.1)
        third = answers(port)
        assert (len(third), len(third.keys() & second.keys())) == (2, 0)

        fails.touch()  # a new process cannot start: nothing changes
        process.send_signal(signal.SIGHUP)
        assert "the old ones go on" in process.stderr.readline()
        assert answers(port).keys() == third.keys()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    for pid in third:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    """Else they would serve forever, beside those of the next server on this port."""
    (tmp_path / "small.py").write_text(SMALL)
    script = (str(tmp_path / "small.py"), str(tmp_path / "fails"))
    with running(*script, out=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        assert len(answers(port)) == 2
        process.kill()
        process.wait()
    deadline, ended = time.monotonic() + 60, False
    while not ended and time.monotonic() < deadline:
        try:
            answers(port)
        except ConnectionError as error:  # a process that ends just then resets its connection
            ended = isinstance(error, ConnectionRefusedError)
    assert ended


def test_a_port_is_not_shared_with_another_server() -> None:
    options = Namespace(host="127.0.0.1", port=0, wyoming=None, workers=2)
    ports = ports_of(options)
    options.port = ports[0].web.getsockname()[1]
    with pytest.raises(UserError, match=rf"--port {options.port}: .*in use"):
        ports_of(options)
    for each in ports:
        each.web.close()
    for each in ports_of(options):  # the other server has ended
        each.web.close()


def test_a_process_that_never_serves(tmp_path: Path) -> None:
    script, fails = tmp_path / "small.py", tmp_path / "fails"
    script.write_text(SMALL)
    fails.touch()
    with running(str(script), str(fails)) as process:
        assert process.wait(timeout=30) == 2


@pytest.mark.parametrize("elsewhere", [0, 1])
def test_the_limit_is_that_of_all_processes(elsewhere: int, served: asrkit.Recognizer) -> None:
    calls = [0, elsewhere]
    server = Server({"m": served}, Limits(streams=2), neighbours=Neighbours(calls, 0))

    async def one_call() -> None:
        with server.call(server.model(), 16000):
            assert calls == [1, elsewhere]
            if elsewhere:
                with pytest.raises(RefusedError, match="all 2 streams are taken"):
                    server.make_room()
            else:
                server.make_room()

    asyncio.run(one_call())
    assert calls == [0, elsewhere]
    server.close()


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
    calls, store = [0, 0], SlowStore()
    server = Server({"m": served}, store=store, neighbours=Neighbours(calls, 0))
    with serving(server) as address:
        with start(address) as client:
            client.recv()
            assert calls == [1, 0]
            store.asked.clear()
            store.answers.clear()
            client.send(bytes(32_000))
        assert store.asked.wait(10)  # it saves the call
        assert calls == [0, 0]
        store.answers.set()


@pytest.mark.parametrize("workers", [1, 2])
def test_several_processes_need_no_folder_for_calls(workers: int) -> None:
    given = {"state_dir": None, "redis": None, "state_key_file": None, "save_seconds": 1.0}
    options = Namespace(workers=workers, **given)
    if workers > 1:
        assert store_of(options) == (None, None)  # they get one of their own
    else:
        with pytest.raises(UserError, match="--state-dir or --redis"):
            store_of(options)


@pytest.mark.slow
def test_calls_go_on_while_processes_end(recordings: Recordings) -> None:
    """One process is killed and then both are replaced; every text is that of one process."""
    command = ("-m", "asrkit", "serve", "--workers", "2", "--port", "0", "--save-seconds", "1")
    options = ("--streams", "60", "--endpoint-ms", "400", "--log", "json")
    recognizer = asrkit.load(
        "small-en-alnum", endpointer=asrkit.Endpointer(400), second_pass="full"
    )
    with running(*command, *options, err=subprocess.PIPE) as process:
        assert process.stderr is not None
        found = re.search(r"http://(127\.0\.0\.1:\d+)/", process.stderr.readline())
        assert found is not None
        samples = [whole(recordings, number)[0] for number in range(6)]
        callers = [Caller([found[1]], each, pause=0.2) for each in samples]
        with ThreadPoolExecutor(len(callers)) as pool:
            talking = [pool.submit(caller.talk) for caller in callers]
            time.sleep(4.0)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
            os.kill(int(next(p for p in children if b"spawn_main" in commands[p])), signal.SIGKILL)
            time.sleep(4.0)
            process.send_signal(signal.SIGHUP)
            heard = [each.result(timeout=200) for each in talking]
        text = urlopen(f"http://{found[1]}/metrics").read().decode()
    for messages, each in zip(heard, samples, strict=True):
        assert_is(messages, recognizer.transcribe(each), len(each))
    assert sum(caller.resumes > 1 for caller in callers) >= 2  # else nothing was interrupted
    assert 'asrkit_streams{model="small-en-alnum"} 0.0' in text.splitlines()
