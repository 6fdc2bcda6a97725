"""Connections of a protocol that is plain bytes over TCP, with the same bounds as the others."""

import asyncio
import logging
import socket
import time
from asyncio import StreamReader, StreamReaderProtocol, StreamWriter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

from asrkit.serve import fair
from asrkit.serve.connections import BACKLOG, Gate, Paced
from asrkit.serve.logs import log
from asrkit.serve.places import client_of

logger = logging.getLogger(__name__)

LINE_BYTES = 1 << 16  # longest line

Handle: TypeAlias = "Callable[[StreamReader, StreamWriter], Coroutine[Any, Any, None]]"


class Stream(Paced, StreamReaderProtocol):
    """A connection whose handler reads and writes bytes.

    The handler runs until it returns, or until the connection is lost.

    Args:
        gate: gate that counts the connection.
        name: name of the protocol in the log.
        full: answer to a connection that was rejected.
        handle: coroutine function of a reader and a writer.
    """

    def __init__(self, gate: Gate, name: str, full: bytes, handle: Handle) -> None:
        self.reader = StreamReader(limit=LINE_BYTES)
        super().__init__(self.reader)
        self.gate, self.name, self.full, self.handle = gate, name, full, handle
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.wire is None:
            return
        share, loop = self.wire.share, asyncio.get_running_loop()
        share.address = client_of(self.wire.address)
        writer: Any = StreamWriter(self.wire, self, self.reader, loop)  # type: ignore[arg-type]
        current = fair.CURRENT.set(share)
        try:
            self.task = fair.task(self.run(writer))
        finally:
            fair.CURRENT.reset(current)

    async def run(self, writer: StreamWriter) -> None:
        started = time.monotonic()
        try:
            await self.handle(self.reader, writer)
        except OSError:  # the client has disconnected
            pass
        except Exception:
            logger.exception("a connection failed")
        finally:
            writer.close()
            log(self.name, seconds=round(time.monotonic() - started, 3))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.task is not None:
            self.task.cancel()
        super().connection_lost(exc)


@asynccontextmanager
async def listening(
    port: socket.socket, gate: Gate, name: str, full: bytes, handle: Handle
) -> AsyncIterator[None]:
    """A context manager in which connections to a bound socket are served.

    Args:
        port: socket that listens.
        gate: gate of the server's connections.
        name: name of the protocol in the log.
        full: answer to a connection that was rejected.
        handle: coroutine function of a connection's reader and writer.
    """
    loop = asyncio.get_running_loop()
    make = partial(Stream, gate, name, full, handle)
    server = await loop.create_server(make, sock=port, backlog=BACKLOG)
    try:
        yield
    finally:
        server.close()
        owners = [wire.owner for wire in gate.open]
        tasks = [each.task for each in owners if isinstance(each, Stream) and each.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
