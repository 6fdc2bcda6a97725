"""A server in a thread, on a port of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from asrkit.serve.app import app_of
from asrkit.serve.connections import config_of
from asrkit.serve.server import Server


class Running(uvicorn.Server):
    """uvicorn without signal handlers, which only a main thread may have."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def serving(server: Server) -> Iterator[str]:
    """The address of a server, host and port, while it runs."""
    config = config_of(app_of(server), server)
    socket, running = config.bind_socket(), Running(config)
    socket.listen(config.backlog)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [socket]})
    thread.start()
    try:
        yield f"127.0.0.1:{socket.getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join()
