"""Fair shares of the event loop's time: a connection that uses much time waits for the others.

All connections share one thread. Each connection has a credit of processor time. The credit grows
with time, and parsing and handling the connection's messages reduces it. A connection with a
negative credit is not read until the credit is positive again, so its client waits.
"""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

ALL = 0.3  # share of a core for all busy connections together
FIRST_S, MOST_S = 0.05, 0.2  # credit of a new connection, and the largest credit
FIRST_RATE = 0.05  # seconds of credit a second for all new connections of a client
MOST_DEBT_S = 1.0  # seconds of processor time that a client can owe after its connections close
MOST_CLIENTS = 10_000  # clients whose new connections are counted
PRUNE_S = 0.1  # time between two checks which connections are still busy
FULL = 2  # generation of a collection of all objects


class _Thread(threading.local):
    """Times of this thread. Full collections have a start and a sum on both clocks."""

    began_processor = began_wall = processor = wall = 0.0
    read = 0.0  # processor time at the last reading, without full collections


_thread = _Thread()


def note_collection(phase: str, info: dict[str, int]) -> None:
    """Note the start or the end of a garbage collection, as one of `gc.callbacks`."""
    if info["generation"] != FULL:
        return
    if phase == "start":
        _thread.began_processor, _thread.began_wall = time.thread_time(), time.perf_counter()
    else:
        _thread.processor += time.thread_time() - _thread.began_processor
        _thread.wall += time.perf_counter() - _thread.began_wall


def clock() -> float:
    """Return seconds of a clock that stops during this thread's full collections.

    A collection searches the objects of all connections, whoever's work began it. It took 0.05 to
    0.13 s, and the connection that was charged for it waited up to 19 s among a hundred others.
    """
    return time.perf_counter() - _thread.wall


def spent(started: float) -> float:
    """Return the processor seconds of a piece of work on this thread that began at this `clock`.

    Reading the processor time is a system call, and took a sixth of a busy event loop's time. So it
    is read only at the end of a piece. The piece has used no more than its thread since the last
    reading, and no more than the time since its own start.
    """
    now = time.thread_time() - _thread.processor
    used, _thread.read = now - _thread.read, now
    return min(used, clock() - started)


class Shares:
    """The busy connections, among which `ALL` is divided.

    Args:
        clock: returns seconds, which never decrease.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._busy: set[Share] = set()
        self._pruned = 0.0
        self._firsts: dict[str, tuple[float, float]] = {}  # a client's credit, and its time
        if note_collection not in gc.callbacks:
            gc.callbacks.append(note_collection)

    def rate(self, now: float) -> float:
        """Seconds of credit a second for one connection."""
        if now - self._pruned > PRUNE_S:
            self._pruned = now
            most = ALL / max(1, len(self._busy))
            self._busy = {share for share in self._busy if share.credit_at(now, most) < FIRST_S}
        return ALL / max(1, len(self._busy))

    def first(self, client: str) -> float:
        """Return the credit of a client's new connection; many new ones share one credit."""
        left = self._left(client)
        credit = min(FIRST_S, left)
        self._leave_to(client, left - max(0.0, credit))
        return credit

    def owe(self, client: str, seconds: float) -> None:
        """Keep the debt of a client's closed connection, which its next connections begin with."""
        self._leave_to(client, max(-MOST_DEBT_S, self._left(client) - seconds))

    def _left(self, client: str) -> float:
        """Return the credit for new connections of a client; below 0 for a debt."""
        left, at = self._firsts.get(client, (MOST_S, self.clock()))
        return min(MOST_S, left + (self.clock() - at) * FIRST_RATE)

    def _leave_to(self, client: str, left: float) -> None:
        self._firsts.pop(client, None)
        self._firsts[client] = left, self.clock()
        if len(self._firsts) > MOST_CLIENTS:
            del self._firsts[next(iter(self._firsts))]

    def note(self, share: "Share", credit: float) -> None:
        """Note that a connection is busy if its credit is low."""
        if credit < FIRST_S / 2:  # a call has used less when it has begun
            self._busy.add(share)

    def leave(self, share: "Share") -> None:
        """Forget a connection that is closed."""
        self._busy.discard(share)


class Share:
    """A connection's share.

    Args:
        shares: shares of all connections.
        working: called with True when the connection's call begins, with False when it ends.
        client: address of the client; "" if many clients share the address.
    """

    def __init__(
        self,
        shares: Shares,
        working: Callable[[bool], None] = lambda working: None,
        client: str = "",
    ) -> None:
        self.working = working
        self._shares, self._at = shares, shares.clock()
        self._client = client
        self._credit = shares.first(client) if client else FIRST_S
        self.address: str | None = None  # address of the client, once known

    def credit_at(self, now: float, rate: float) -> float:
        return min(MOST_S, self._credit + (now - self._at) * rate)

    def spend(self, seconds: float) -> None:
        """Subtract processor time that was used for the connection."""
        now = self._shares.clock()
        self._credit = self.credit_at(now, self._shares.rate(now)) - seconds
        self._at = now
        self._shares.note(self, self._credit)

    def wait(self) -> float:
        """Seconds until the credit is positive again; 0 if it is now."""
        now = self._shares.clock()
        rate = self._shares.rate(now)
        return max(0.0, -self.credit_at(now, rate) / rate)

    def leave(self) -> None:
        """Forget the share of a connection that is closed; its client keeps the debt."""
        now = self._shares.clock()
        credit = self.credit_at(now, self._shares.rate(now))
        if self._client and credit < 0.0:
            self._shares.owe(self._client, -credit)
        self._shares.leave(self)


CURRENT: ContextVar[Share | None] = ContextVar("share", default=None)  # of this task


def address() -> str:
    """Return the current client's address, or ""."""
    share = CURRENT.get()
    return (share.address if share else None) or ""


async def metered(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, charge each of its steps to the current share, and return its result."""
    share = CURRENT.get()
    return await (work if share is None else Metered(work, share))


class Metered:
    """A coroutine whose steps are charged to a share."""

    def __init__(self, work: Coroutine[Any, Any, Any], share: Share) -> None:
        self._work, self._share = work, share

    def __await__(self) -> Generator[Any, Any, Any]:
        work, value, error = self._work, None, None
        while True:
            started = clock()
            try:
                waits_for = work.send(value) if error is None else work.throw(error)
            except StopIteration as done:
                return done.value
            finally:
                self._share.spend(spent(started))
            try:
                value, error = (yield waits_for), None
            except GeneratorExit:
                work.close()
                raise
            except BaseException as raised:
                value, error = None, raised


def task(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start a task of the current connection, whose steps are charged to the connection."""
    return asyncio.ensure_future(metered(work))
