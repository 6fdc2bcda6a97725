"""uvicorn's protocols with bounds: time of silence, and work per turn.

A client can send faster than the server handles messages, send nothing, or read nothing. So
received bytes are parsed in parts, one part per turn of the event loop. The next part is parsed
when the earlier messages are handled and the connection has time left in its share. Until then the
server reads nothing from the socket, and the client waits.
"""

import asyncio
import time
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from asrkit.serve import fair
from asrkit.serve.gate import Gate, Wire
from asrkit.serve.server import Limits, Server

SMALLEST, FIRST, LARGEST = 512, 4096, 1 << 16  # bytes parsed at a time
QUICK_S, SLOW_S = 0.001, 0.004  # a part parsed faster doubles the next part, a slower one halves it
CHECK_S = 1.0  # time between two checks for silent connections
MOST = 10_000  # connections, even if the descriptors allow more
OWN = 48  # descriptors of the process itself: models, libraries, the store
BACKLOG = 64  # connections accepted in one turn of the event loop
JOIN, ANSWERED = "asrkit.join", "asrkit.answered"  # extensions in the scope of a WebSocket
GRACE_S = 30.0  # first part of a body, during which any rate is allowed
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n"
    b"content-length: 0\r\n\r\n"
)


class Paced(asyncio.Protocol):
    """Base of all protocols: it parses in parts, and disconnects clients that do not read."""

    gate: Gate  # set by `config_of` in a subclass
    full = FULL  # the answer to a connection that was rejected

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
                transport.write(self.full)
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
        current, started = fair.CURRENT.set(wire.share), fair.clock()
        try:
            super().data_received(part)
        finally:
            fair.CURRENT.reset(current)
            spent = fair.spent(started)
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
    """WebSockets, whose messages reach the application one at a time.

    Binary messages are joined up to the size that the application asks for: see `join`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.joined, self.wanted = bytearray(), 0
        self.heard = False  # whether anything came since the last ping
        # Whether the client has answered the close, and has therefore received all messages.
        self.answered: asyncio.Future[bool] = self.loop.create_future()

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["extensions"][JOIN] = self.join  # type: ignore[assignment]
            self.scope["extensions"][ANSWERED] = self.answered  # type: ignore[assignment]

    def join(self, size: int) -> bool:
        """Have binary messages joined up to `size` bytes; return whether some have arrived."""
        self.wanted = size
        has_joined = bool(self.joined)
        if len(self.joined) >= size:
            self.pass_on()
        return has_joined

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "bytes" and self.frames != [b""]:
            for frame in self.frames:
                self.joined += frame
            self.frames = []
            if len(self.joined) >= self.wanted:
                self.pass_on()
            return
        self.pass_on()
        super().send_receive_event_to_app()

    def pass_on(self) -> None:
        """Make a message of the bytes that were joined, if there are any."""
        kind, frames = self.curr_msg_data_type, self.frames
        if self.joined:
            self.curr_msg_data_type, self.frames = "bytes", [bytes(self.joined)]
            self.joined.clear()
            super().send_receive_event_to_app()
        self.curr_msg_data_type, self.frames = kind, frames

    def handle_close(self, event: Any) -> None:
        self.pass_on()
        received, sent = self.conn.close_rcvd, self.conn.close_sent
        codes = {each and each.code for each in (received, sent)}  # a client may leave just now
        self.note_answer(self.close_sent and len(codes) == 1)
        super().handle_close(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self.pass_on()
        self.note_answer(False)
        super().connection_lost(exc)

    def note_answer(self, answered: bool) -> None:
        """Note whether the client has answered the close, once."""
        if not self.answered.done():
            self.answered.set_result(answered)

    async def receive(self) -> Any:
        if self.wire is not None and not self.queue.empty():  # else this would not let others run
            await asyncio.sleep(self.wire.share.wait())
        return await super().receive()

    def shutdown(self) -> None:
        """Close the connection as the server ends; its client may be closing it already."""
        self.note_answer(False)
        with suppress(InvalidState):  # else uvicorn would end neither other calls nor the workers
            super().shutdown()
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        self.heard = True
        super().data_received(data)

    def send_keepalive_ping(self) -> None:
        self.heard = False
        super().send_keepalive_ping()

    def keepalive_timeout(self) -> None:
        """Close the connection of a client that is gone; a pong may wait behind unread audio."""
        if self.wire is not None and (self.heard or self.is_waiting or self.wire.paused):
            self.pong_timer = self.pending_ping_payload = None  # a late pong pings no more
            self.schedule_ping()
        else:
            super().keepalive_timeout()

    def handle_ping(self) -> None:
        if self.deaf:  # unread pongs would fill the memory
            self.conn.data_to_send()
        else:
            super().handle_ping()


def gate_of(server: Server) -> Gate:
    """Return the gate of a server's connections, over all of its ports."""
    limits = server.limits
    most = limits.connections or most_connections(limits)
    full = server.figures.refused.labels("connections")
    return Gate(most, limits.header_s, limits.silence_s, refused=full.inc, proxies=server.proxies)


def config_of(
    app: Any,
    server: Server,
    host: str = "127.0.0.1",
    port: int = 0,
    gate: Gate | None = None,
    **options: Any,
) -> uvicorn.Config:
    """Return uvicorn's configuration for a server's application.

    Args:
        app: application, as `app_of` returns it.
        server: server, for its limits and metrics.
        host: address or name to listen on.
        port: port to listen on; 0 for any free one.
        gate: gate of the server's connections, if it is shared with other ports.
        options: further options of uvicorn.
    """
    limits, own = server.limits, {"gate": gate or gate_of(server)}
    http, websocket = (type(each.__name__, (each,), own) for each in (Http, WebSocket))
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
