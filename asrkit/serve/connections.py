"""uvicorn's connections with bounds: their number, their time of silence, and work per turn.

A client can send faster than the server handles messages, send nothing, or read nothing. So
received bytes are parsed in parts, one part per turn of the event loop. The next part is parsed
when the earlier messages are handled and the connection has time left in its share. Until then the
server reads nothing from the socket, and the client waits.
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

SMALLEST, FIRST, LARGEST = 512, 4096, 1 << 16  # bytes parsed at a time
QUICK_S, SLOW_S = 0.001, 0.004  # a part parsed faster doubles the next part, a slower one halves it
CHECK_S = 1.0  # time between two checks for silent connections
LINGER_S = 2.0  # time without progress after which a closed connection is aborted
LINGER_BYTES = 1 << 23  # bytes that a client may send after its connection was closed
MOST = 10_000  # connections, even if the descriptors allow more
OWN = 48  # descriptors of the process itself: models, libraries, the store
BACKLOG = 64  # connections accepted in one turn of the event loop
GRACE_S = 30.0  # first part of a body, during which any rate is allowed
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n"
    b"content-length: 0\r\n\r\n"
)


class Gate:
    """The connections of a server, `most` at the same time.

    If the server is full, a new connection replaces one without an open request: the oldest one
    that never sent a byte, or else the oldest other one. One address may have half of all
    connections, except this machine's own address and a proxy's.

    Args:
        most: largest number of connections.
        header_s: seconds within which a request's header must arrive.
        deaf_s: seconds after which a client that reads nothing is disconnected.
        body_rate: lowest rate of a request's body, bytes a second.
        refused: called for each connection that was rejected.
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
        # Connections without an open request, oldest first: those that never sent a byte, others.
        self.silent: dict[Wire, None] = {}
        self.idle: dict[Wire, None] = {}
        self._addresses: Counter[str] = Counter()

    def admit(self, wire: "Wire") -> bool:
        """Count a connection until `leave`, and return whether it was accepted."""
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
    """A transport that is read only when its protocol can parse, and that always closes.

    uvicorn uses it in place of asyncio's transport. `close` sends the waiting data and drops what
    the client still sends, so that a reset does not destroy the answer. Then it aborts.

    Args:
        transport: asyncio's transport.
        gate: gate that counts this connection.
    """

    def __init__(self, transport: Any, gate: Gate) -> None:
        self.transport, self.gate = transport, gate
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        client = "" if is_shared(self.address, gate.proxies) else client_of(self.address)
        self.share = fair.Share(gate.shares, self.is_working, client)
        self.owner: Paced  # the protocol
        self.closing = False
        self.paused = False  # by uvicorn: earlier messages are not handled yet
        self._reading, self._dropped = True, 0
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def is_working(self, working: bool) -> None:
        """Note whether the connection has an open request or call."""
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
        if not self.closing:  # nothing may follow the end of the data
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
            with suppress(OSError):  # the client has disconnected: reading reports it
                self.transport.write_eof()
        else:  # TLS
            self.transport.close()

    def _linger(self, count: int, unsent: int) -> None:
        """Abort if everything was sent, or nothing since the last check."""
        left = self.transport.get_write_buffer_size()
        if count and (left == 0 or left >= unsent):
            self.transport.abort()
        else:
            self._loop.call_later(LINGER_S, self._linger, count + 1, left)

    def drop(self, size: int) -> None:
        """Count bytes received after `close`; abort after `LINGER_BYTES`."""
        self._dropped += size
        if self._dropped > LINGER_BYTES:
            self.transport.abort()


class Paced(asyncio.Protocol):
    """Base of both protocols: it parses in parts, and disconnects clients that do not read."""

    gate: Gate  # set by `config_of` in a subclass

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.wire: Wire | None = None  # once admitted
        self.pending = bytearray()  # received, not yet parsed
        self.size = FIRST
        self.deaf = False  # whether the client does not read
        self.timer: asyncio.TimerHandle | asyncio.Handle | None = None  # for the next part
        self.deaf_timer: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether reading must wait."""
        return bool(self.pending) or self.timer is not None

    def connection_made(self, transport: Any) -> None:
        if isinstance(transport, Wire):  # a WebSocket, upgraded from HTTP
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
        """Parse the pending bytes once the connection's share allows it."""
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
    """HTTP requests, each of which must arrive in time."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.silent_since = self.body_since = time.monotonic()
        self.body_bytes = 0
        if self.wire is not None:
            self.wire._loop.call_later(CHECK_S, self.check)

    @property
    def is_asked(self) -> bool:
        """Whether the connection has an unanswered request."""
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
            if self.cycle.more_body:  # nobody reads the rest: the connection cannot be reused
                self.wire.close()
        super().on_response_complete()

    def check(self) -> None:
        """Close the connection of a client that sends no request, or its body too slowly."""
        wire = self.wire
        if wire is None or wire.owner is not self or wire.is_closing():
            return
        now, gate = time.monotonic(), self.gate
        if not self.is_asked:
            if now - self.silent_since > gate.header_s:
                wire.close()
                return
        elif not self.cycle.more_body or wire.paused or self.is_waiting:
            self.body_since, self.body_bytes = now, 0  # the delay is not the client's
        elif now - self.body_since > GRACE_S:
            if self.body_bytes < gate.body_rate * (now - self.body_since):
                wire.close()
                return
            self.body_since, self.body_bytes = now, 0
        wire._loop.call_later(CHECK_S, self.check)


class WebSocket(Paced, WebSocketsSansIOProtocol):
    """WebSockets, whose messages reach the application one at a time."""

    async def receive(self) -> Any:
        if self.wire is not None and not self.queue.empty():  # else this would not let others run
            await asyncio.sleep(self.wire.share.wait())
        return await super().receive()

    def handle_ping(self) -> None:
        if self.deaf:  # unread pongs would fill the memory
            self.conn.data_to_send()
        else:
            super().handle_ping()


def config_of(
    app: Any, server: Server, host: str = "127.0.0.1", port: int = 0, **options: Any
) -> uvicorn.Config:
    """Return uvicorn's configuration for a server's application.

    Args:
        app: application, as `app_of` returns it.
        server: server, for its limits and metrics.
        host: address or name to listen on.
        port: port to listen on; 0 for any free one.
        options: further options of uvicorn.
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
    """Return the largest number of connections that leaves enough descriptors for other files."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MOST
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MOST
    uploads = (
        limits.uploads_waiting + limits.decoders
    )  # one file each; a process also has two pipes
    return max(16, min(MOST, descriptors - OWN - BACKLOG - uploads - 3 * limits.decoders))
