"""Fair shares of the event loop's time: a connection that uses much of it waits for the others.

All connections share one thread. Each has a credit of processor time, which grows with time and
which its own work uses up: parsing what it sends, and following its messages. A connection in debt
is not read from until the debt is paid back, so that its client waits in its socket.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

ALL = 0.3  # of a core, for all connections together that use much
FIRST_S, MOST_S = 0.05, 0.2  # credit of a new connection, and the most that is saved up
FIRST_RATE = 0.05  # seconds of credit a second for all new connections of a client
MOST_CLIENTS = 10_000  # whose new connections are counted
PRUNE_S = 0.1  # between two looks at who still uses much


class Shares:
    """The connections that use much, among which `ALL` is divided.

    Args:
        clock: seconds, which only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._busy: set[Share] = set()
        self._pruned = 0.0
        self._firsts: dict[str, tuple[float, float]] = {}  # credit left to a client, when

    def rate(self, now: float) -> float:
        """Seconds of credit a second for one connection."""
        if now - self._pruned > PRUNE_S:
            self._pruned = now
            most = ALL / max(1, len(self._busy))
            self._busy = {share for share in self._busy if share.credit_at(now, most) < MOST_S / 2}
        return ALL / max(1, len(self._busy))

    def first(self, client: str) -> float:
        """Return the credit of a client's new connection: what its other new ones have left."""
        now = self.clock()
        left, at = self._firsts.pop(client, (MOST_S, now))
        left = min(MOST_S, left + (now - at) * FIRST_RATE)
        credit = min(FIRST_S, left)
        self._firsts[client] = left - credit, now
        if len(self._firsts) > MOST_CLIENTS:
            del self._firsts[next(iter(self._firsts))]
        return credit

    def note(self, share: "Share", credit: float) -> None:
        """Note who uses much."""
        if credit < MOST_S / 4:
            self._busy.add(share)

    def leave(self, share: "Share") -> None:
        """Forget a connection that is closed."""
        self._busy.discard(share)


class Share:
    """One connection's share.

    Args:
        shares: of all connections.
        working: is told when the connection's call begins, and when it ends.
        client: whose connection it is; "" where many clients have one address.
    """

    def __init__(
        self,
        shares: Shares,
        working: Callable[[bool], None] = lambda working: None,
        client: str = "",
    ) -> None:
        self.working = working
        self._shares, self._at = shares, shares.clock()
        self._credit = shares.first(client) if client else FIRST_S
        self.address: str | None = None  # of the client, once it is known

    def credit_at(self, now: float, rate: float) -> float:
        return min(MOST_S, self._credit + (now - self._at) * rate)

    def spend(self, seconds: float) -> None:
        """Note processor time that was used for the connection."""
        now = self._shares.clock()
        self._credit = self.credit_at(now, self._shares.rate(now)) - seconds
        self._at = now
        self._shares.note(self, self._credit)

    def wait(self) -> float:
        """Seconds until the connection is out of debt."""
        now = self._shares.clock()
        rate = self._shares.rate(now)
        return max(0.0, -self.credit_at(now, rate) / rate)

    def leave(self) -> None:
        """Forget the share of a connection that is closed."""
        self._shares.leave(self)


CURRENT: ContextVar[Share | None] = ContextVar("share", default=None)  # of whoever runs


def address() -> str:
    """The current client's address, or ""."""
    share = CURRENT.get()
    return (share.address if share else None) or ""


async def metered(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, each of whose steps is charged to the current share."""
    share = CURRENT.get()
    return await (work if share is None else Metered(work, share))


class Metered:
    """A coroutine whose steps are charged to a share."""

    def __init__(self, work: Coroutine[Any, Any, Any], share: Share) -> None:
        self._work, self._share = work, share

    def __await__(self) -> Generator[Any, Any, Any]:
        work, value, error = self._work, None, None
        while True:
            started = time.thread_time()
            try:
                waits_for = work.send(value) if error is None else work.throw(error)
            except StopIteration as done:
                return done.value
            finally:
                self._share.spend(time.thread_time() - started)
            try:
                value, error = (yield waits_for), None
            except GeneratorExit:
                work.close()
                raise
            except BaseException as raised:
                value, error = None, raised


def task(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """A task of the current connection, whose steps are charged to its share."""
    return asyncio.ensure_future(metered(work))
