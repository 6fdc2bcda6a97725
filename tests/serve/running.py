"""A server in a thread, on a port of its own."""

import inspect
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from websockets.sync.client import ClientConnection, connect

from asrkit.runtime import Segment, Word
from asrkit.serve.app import app_of, config_of
from asrkit.serve.dialects.wyoming import wyoming
from asrkit.serve.server import Server
from tests.conftest import PROJECT

Recordings = list[tuple[Path, np.ndarray]]  # files and their samples as int16
# websockets 17 asks whether connections are opened without a `with` statement.
LEGACY = {"legacy": True} if "legacy" in inspect.signature(connect).parameters else {}


def spans(words: Iterable[Word]) -> list[tuple[str, float, float]]:
    """The texts, starts and ends of words."""
    return [(word.text, word.start, word.end) for word in words]


def spoken(segments: Iterable[Segment]) -> list[tuple[str, float, float]]:
    """The texts, starts and ends of segments with text."""
    return [(each.text, each.spoken, each.spoken_end) for each in segments if each.text]


def connected(url: str, **options: Any) -> ClientConnection:
    """A client's connection to a server."""
    return connect(url, **options, **LEGACY)


class Running(uvicorn.Server):
    """uvicorn without signal handlers, which only a main thread may have."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def serving(
    server: Server,
    port: socket.socket | None = None,
    grace_s: int = 10,
    proxies: tuple[str, ...] = (),
) -> Iterator[str]:
    """The address of a server, host and port, while it runs; Wyoming is served on another port."""
    beside = [] if port is None else [wyoming(server, port)]
    config = config_of(
        app_of(server, *beside), server.limits, proxies,
        timeout_graceful_shutdown=grace_s,  # a client that a failed test left open
    )  # fmt: skip
    own, running = socket.create_server(("127.0.0.1", 0)), Running(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [own]}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{own.getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join(120)
        assert not thread.is_alive(), "the server does not end"


@contextmanager
def listening(command: list[str], port: int) -> Iterator[None]:
    """A context manager of a process that listens on a port."""
    with subprocess.Popen(command, cwd=PROJECT) as process:
        try:
            for _ in range(600):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
                time.sleep(0.1)
            yield
        finally:
            process.terminate()


def call_of(recordings: Recordings, *numbers: int) -> np.ndarray:
    """A call in which these recordings are the channels: (n, channels) int16."""
    channels = [recordings[number][1] for number in numbers]
    length = max(map(len, channels))
    return np.stack([np.pad(each, (0, length - len(each))) for each in channels], axis=1)
