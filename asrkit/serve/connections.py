"""Connections as uvicorn has them, with bounds: how many, how long silent, how much at a time.

A client can send faster than its messages can be followed, send nothing, or read nothing. So what
came is parsed in parts, one per turn of the event loop, and only when what was parsed before has
been followed and the connection has time left of its share. Until then nothing is read from the
socket, and the client waits.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from asrkit.serve import fair
from asrkit.serve.places import Network, client_of, is_shared
from asrkit.serve.server import Limits, Server

SMALLEST, FIRST, LARGEST = 512, 4096, 1 << 16  # bytes that are parsed at a time
QUICK_S, SLOW_S = 0.001, 0.004  # to parse them: more are parsed next time, or fewer
CHECK_S = 1.0  # between two looks at how long a connection has been silent
LINGER_S = 2.0  # without progress, after which a connection that was closed is aborted
LINGER_BYTES = 1 << 23  # that a client may still send after its connection was closed
MOST = 10_000  # connections, where descriptors allow more
OWN = 48  # descriptors of the process itself: models, libraries, the store
BACKLOG = 64  # connections that are accepted in one turn of the event loop
GRACE_S = 30.0  # of a body, before its rate counts
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n"
    b"content-length: 0\r\n\r\n"
)


class Gate:
    """The connections of a server, as many as it may have.

    When all are taken, one on which nothing is asked for makes room for the next: the oldest of
    those that never sent a byte, or else the oldest of the others. One address may have half of
    them, unless it is this machine's or a proxy's.

    Args:
        most: connections at the same time.
        header_s: seconds in which a request has to come, with its header.
        deaf_s: seconds after which a client that reads nothing is disconnected.
        body_rate: bytes a second at which a body has to come.
        refused: is told of each connection for which there is no room.
        proxies: addresses of trusted proxies.
    """

    def __init__(
        self,
        most: int,
        header_s: float = 10.0,
        deaf_s: float = 60.0,
        body_rate: float = 1000.0,
        refused: Callable[[], None] = lambda: None,
        proxies: Collection[Network] = (),
    ) -> None:
        self.most, self.header_s, self.deaf_s, self.body_rate = most, header_s, deaf_s, body_rate
        self.shares, self.refused, self.proxies = fair.Shares(), refused, proxies
        self.open: set[Wire] = set()
        # On which nothing is asked for, the oldest first: those that never sent a byte, the others.
        self.silent: dict[Wire, None] = {}
        self.idle: dict[Wire, None] = {}
        self._addresses: Counter[str] = Counter()

    def admit(self, wire: "Wire") -> bool:
        """Whether there is room for a connection; it is counted until `leave`."""
        if len(self.open) >= self.most and (unused := self.silent or self.idle):
            next(iter(unused)).abort()
        address = wire.address
        full = len(self.open) >= self.most
        is_greedy = 2 * self._addresses[address] >= self.most
        if full or (is_greedy and not is_shared(address, self.proxies)):
            self.refused()
            return False
        self.open.add(wire)
        self.silent[wire] = None
        self._addresses[address] += 1
        return True

    def leave(self, wire: "Wire") -> None:
        """Forget a connection."""
        if wire in self.open:
            self.open.discard(wire)
            self.silent.pop(wire, None)
            self.idle.pop(wire, None)
            self._addresses[wire.address] -= 1
            if not self._addresses[wire.address]:
                del self._addresses[wire.address]
            wire.share.leave()


class Wire:
    """A transport that is read from only when its protocol can parse, and that closes in the end.

    uvicorn uses it as the transport that it stands for. `close` sends what is left, and drops what
    the client still sends, so that an answer is not lost with a reset; then it aborts.

    Args:
        transport: of asyncio.
        gate: counts it.
    """

    def __init__(self, transport: Any, gate: Gate) -> None:
        self.transport, self.gate = transport, gate
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        client = "" if is_shared(self.address, gate.proxies) else client_of(self.address)
        self.share = fair.Share(gate.shares, self.is_working, client)
        self.owner: Paced  # the protocol
        self.closing = False
        self.paused = False  # by uvicorn: what was parsed is not followed yet
        self._reading, self._dropped = True, 0
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def is_working(self, working: bool) -> None:
        """Note whether something was asked for, and is not done yet."""
        self.gate.silent.pop(self, None)
        if working:
            self.gate.idle.pop(self, None)
        elif self in self.gate.open:
            self.gate.idle[self] = None

    def note_data(self) -> None:
        """Note that the client has sent something."""
        if self in self.gate.silent:
            self.is_working(False)

    def pause_reading(self) -> None:
        self.paused = True
        self.update()

    def resume_reading(self) -> None:
        self.paused = False
        self.owner.go_on()

    def update(self) -> None:
        """Read from the socket, or stop reading."""
        wanted = self.closing or (not self.paused and not self.owner.is_waiting)
        if wanted == self._reading or self.transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def write(self, data: bytes) -> None:
        if not self.closing:  # after the end of what is sent there is no more
            self.transport.write(data)

    def is_closing(self) -> bool:
        return self.closing or bool(self.transport.is_closing())

    def abort(self) -> None:
        self.gate.leave(self)
        self.transport.abort()

    def close(self) -> None:
        if self.is_closing():
            return
        self.closing = True
        self._linger(0, self.transport.get_write_buffer_size())
        if self.transport.can_write_eof():
            self.update()
            with suppress(OSError):  # the client has left: reading will tell
                self.transport.write_eof()
        else:  # TLS
            self.transport.close()

    def _linger(self, count: int, unsent: int) -> None:
        """Abort when nothing was sent since the last look."""
        left = self.transport.get_write_buffer_size()
        if count and (left == 0 or left >= unsent):
            self.transport.abort()
        else:
            self._loop.call_later(LINGER_S, self._linger, count + 1, left)

    def drop(self, size: int) -> None:
        """Note bytes that came after `close`."""
        self._dropped += size
        if self._dropped > LINGER_BYTES:
            self.transport.abort()


class Paced(asyncio.Protocol):
    """What both protocols have: parsing in parts, and an end for clients that do not read."""

    gate: Gate  # of the subclass that `protocols` makes

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.wire: Wire | None = None  # once it is admitted
        self.pending = bytearray()  # that came and is not parsed
        self.size = FIRST
        self.deaf = False  # the client does not read what is sent to it
        self.timer: asyncio.TimerHandle | asyncio.Handle | None = None  # of the next part
        self.deaf_timer: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether more is not to be read now."""
        return bool(self.pending) or self.timer is not None

    def connection_made(self, transport: Any) -> None:
        if isinstance(transport, Wire):  # a WebSocket that HTTP hands over
            self.wire = transport
        else:
            wire = Wire(transport, self.gate)
            if not self.gate.admit(wire):
                transport.write(FULL)
                transport.close()
                return
            self.wire = wire
        self.wire.owner = self
        super().connection_made(self.wire)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self.timer, self.deaf_timer):
            if timer is not None:
                timer.cancel()
        self.pending.clear()
        if self.wire is not None:
            self.gate.leave(self.wire)
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.wire is None:
            return
        if self.wire.closing:
            self.wire.drop(len(data))
            return
        self.wire.note_data()
        self.pending += data
        if self.timer is None:
            self.parse()

    def go_on(self) -> None:
        """Parse what is pending, once the share allows it."""
        if self.timer is None and self.wire is not None:
            loop, seconds = asyncio.get_running_loop(), self.wire.share.wait()
            if seconds:
                self.timer = loop.call_later(seconds, self.parse)
            elif self.pending:
                self.timer = loop.call_soon(self.parse)
            self.wire.update()

    def parse(self) -> None:
        """Parse the next part."""
        self.timer, wire = None, self.wire
        if wire is None or wire.owner is not self:  # handed over
            return
        if wire.closing:
            self.pending.clear()
        if not self.pending or wire.paused:
            wire.update()
            return
        part = bytes(self.pending[: self.size])
        del self.pending[: self.size]
        current, started = fair.CURRENT.set(wire.share), time.thread_time()
        try:
            super().data_received(part)
        finally:
            fair.CURRENT.reset(current)
            spent = time.thread_time() - started
            wire.share.spend(spent)
        if spent > SLOW_S:
            self.size = max(SMALLEST, self.size // 2)
        elif spent < QUICK_S:
            self.size = min(LARGEST, self.size * 2)
        if wire.owner is self:
            self.go_on()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.deaf = True
        if self.wire is not None:
            loop = asyncio.get_running_loop()
            self.deaf_timer = loop.call_later(self.gate.deaf_s, self.wire.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.deaf = False
        if self.deaf_timer is not None:
            self.deaf_timer.cancel()


class Http(Paced, H11Protocol):
    """Requests, each of which has to come in time."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.silent_since = self.body_since = time.monotonic()
        self.body_bytes = 0
        if self.wire is not None:
            self.wire._loop.call_later(CHECK_S, self.check)

    @property
    def is_asked(self) -> bool:
        """Whether a request is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        self.body_bytes += len(data)
        super().data_received(data)

    def parse(self) -> None:
        asked = self.is_asked
        super().parse()
        if self.wire is not None and self.wire.owner is self and self.is_asked and not asked:
            self.wire.is_working(True)
            self.body_since, self.body_bytes = time.monotonic(), 0

    def on_response_complete(self) -> None:
        self.silent_since = time.monotonic()
        if self.wire is not None:
            self.wire.is_working(False)
            if self.cycle.more_body:  # nobody reads it: this connection is of no use any more
                self.wire.close()
        super().on_response_complete()

    def check(self) -> None:
        """Close the connection of a client that asks for nothing, or sends its body too slowly."""
        wire = self.wire
        if wire is None or wire.owner is not self or wire.is_closing():
            return
        now, gate = time.monotonic(), self.gate
        if not self.is_asked:
            if now - self.silent_since > gate.header_s:
                wire.close()
                return
        elif not self.cycle.more_body or wire.paused or self.is_waiting:
            self.body_since, self.body_bytes = now, 0  # the client is not what is waited for
        elif now - self.body_since > GRACE_S:
            if self.body_bytes < gate.body_rate * (now - self.body_since):
                wire.close()
                return
            self.body_since, self.body_bytes = now, 0
        wire._loop.call_later(CHECK_S, self.check)


class WebSocket(Paced, WebSocketsSansIOProtocol):
    """WebSockets; what they send comes to the application a message at a time."""

    async def receive(self) -> Any:
        if self.wire is not None and not self.queue.empty():  # or it would never let others run
            await asyncio.sleep(self.wire.share.wait())
        return await super().receive()

    def handle_ping(self) -> None:
        if self.deaf:  # pongs that nobody reads would fill the memory
            self.conn.data_to_send()
        else:
            super().handle_ping()


def config_of(
    app: Any, server: Server, host: str = "127.0.0.1", port: int = 0, **options: Any
) -> uvicorn.Config:
    """uvicorn's configuration for a server's application.

    Args:
        app: of `app_of`.
        server: whose limits hold.
        host: address or name to listen on.
        port: 0 for any free one.
        options: others of uvicorn.
    """
    limits = server.limits
    most = limits.connections or most_connections(limits)
    full = server.figures.refused.labels("connections")
    gate = Gate(most, limits.header_s, limits.silence_s, refused=full.inc, proxies=server.proxies)
    http, websocket = (type(each.__name__, (each,), {"gate": gate}) for each in (Http, WebSocket))
    return uvicorn.Config(
        app, host, port, http=http, ws=websocket, log_config=None, log_level="warning",
        ws_max_size=limits.message_kb * 1024, ws_per_message_deflate=False, backlog=BACKLOG,
        proxy_headers=bool(server.proxies), forwarded_allow_ips=[*map(str, server.proxies)],
        **options,
    )  # fmt: skip


def most_connections(limits: Limits) -> int:
    """How many connections leave enough descriptors for everything else."""
    try:
        import resource
    except ImportError:  # on Windows there is no such limit
        return MOST
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MOST
    uploads = limits.uploads_waiting + limits.decoders  # a file each; a process has two pipes
    return max(16, min(MOST, descriptors - OWN - BACKLOG - uploads - 3 * limits.decoders))
