"""The open connections of a server, their number bounded, and a transport that always closes."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Protocol

from asrkit.serve import fair
from asrkit.serve.places import Network, client_of, is_shared

LINGER_S = 2.0  # time without progress after which a closed connection is aborted
LINGER_BYTES = 1 << 23  # bytes that a client may send after its connection was closed


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


class Owner(Protocol):
    """A protocol that reads from a wire."""

    @property
    def is_waiting(self) -> bool:
        """Whether reading must wait."""

    def go_on(self) -> None:
        """Parse what is pending."""


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
        self.owner: Owner  # the protocol
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
        self.paused = True  # the socket is read until more data come, mostly after the pause

    def resume_reading(self) -> None:
        self.paused = False
        self.owner.go_on()

    def update(self) -> None:
        """Read from the socket, or stop reading."""
        wanted = self.closing or not self.owner.is_waiting
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
