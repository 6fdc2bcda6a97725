"""Processes that share a server's ports: started, watched, and replaced one by one.

Each process has sockets of its own at the same addresses (SO_REUSEPORT): the system divides new
connections among them evenly. This process keeps the sockets open, so a connection that comes while
a process is replaced waits for the next one.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, NamedTuple

from prometheus_client.multiprocess import mark_process_dead

from asrkit.errors import UserError

logger = logging.getLogger(__name__)

METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"  # variable that prometheus_client reads
END_S = 15.0  # time for a process to end its calls
LOOK_S = 0.5  # time between two looks at signals
SPAWN = get_context("spawn")  # threads of torch do not survive a fork


class Neighbours(NamedTuple):
    """The numbers of calls in all processes, of which each writes its own.

    Attributes:
        calls: number of calls of each process, in shared memory.
        own: index of this process.
    """

    calls: Any
    own: int

    def note(self, calls: int) -> None:
        """Note the number of this process's calls."""
        self.calls[self.own] = calls

    def elsewhere(self) -> int:
        """Return the number of calls in the other processes."""
        return sum(self.calls) - self.calls[self.own]


class Child(NamedTuple):
    """A process, and the connection on which it says that it serves."""

    process: Any
    ready: Connection
    slot: int


@asynccontextmanager
async def announced(ready: Connection) -> AsyncIterator[None]:
    """Say that this process serves: a context manager beside an application."""
    ready.send(None)
    ready.close()
    yield


class Processes:
    """The processes of a server.

    Args:
        work: function of a module that serves until SIGTERM. Its arguments are those below, the
            process's ports, a `Neighbours` and a connection for `announced`.
        arguments: first arguments of `work`.
        ports: ports of each process.
    """

    def __init__(
        self, work: Callable[..., None], arguments: tuple[Any, ...], ports: Sequence[Any]
    ) -> None:
        self.work, self.arguments, self.ports = work, arguments, ports
        # While a process is replaced, both the old and the new one count their calls.
        self.calls = SPAWN.Array("i", 2 * len(ports), lock=False)
        self.children: list[Child] = []
        self.signals: list[int] = []

    def run(self, serving: Callable[[], object]) -> int:
        """Run until SIGTERM or SIGINT; SIGHUP replaces all processes, one by one.

        Args:
            serving: function that is called once all processes serve.

        Returns:
            0, or 2 if a process fails before it serves.
        """
        with self._noted():
            try:
                self.children = [self._start(place, place) for place in range(len(self.ports))]
                if not all(map(self._serves, self.children)):
                    return 0 if self._is_ending else 2
                serving()
                while not self._is_ending:
                    if not self._look():
                        return 2
                return 0
            finally:
                self._end(self.children)

    @property
    def _is_ending(self) -> bool:
        return bool({signal.SIGTERM, signal.SIGINT}.intersection(self.signals))

    def _look(self) -> bool:
        """Replace processes that ended, or all of them after SIGHUP; False if one cannot start."""
        wait([child.process.sentinel for child in self.children], LOOK_S)
        for place, child in enumerate(self.children):
            if child.process.exitcode is not None and not self._is_ending:
                code = child.process.exitcode
                logger.warning("a process ended with status %d and is started again", code)
                self._end([child])
                self.children[place] = self._start(place, child.slot)
                if not self._serves(self.children[place]):
                    return self._is_ending
        if signal.SIGHUP in self.signals:
            self.signals.remove(signal.SIGHUP)
            for place in range(len(self.ports)):
                if not self._is_ending:
                    self._replace(place)
        return True

    def _replace(self, place: int) -> None:
        old = self.children[place]
        new = self._start(place, (old.slot + len(self.ports)) % len(self.calls))
        if self._serves(new):
            self.children[place] = new
            self._end([old])
        else:  # a changed model may be wrong: the old process still serves
            self._end([new])
            if not self._is_ending:
                logger.error("a new process does not serve: the old ones go on")

    def _start(self, place: int, slot: int) -> Child:
        ready, theirs = SPAWN.Pipe(duplex=False)
        neighbours = Neighbours(self.calls, slot)
        process = SPAWN.Process(
            target=_work, args=(self.work, *self.arguments, self.ports[place], neighbours, theirs)
        )
        process.start()
        theirs.close()
        return Child(process, ready, slot)

    def _serves(self, child: Child) -> bool:
        """Wait until a process serves; False if it ended, or if all are to end."""
        while not self._is_ending:
            if child.ready.poll(LOOK_S):
                try:
                    child.ready.recv()
                except EOFError:
                    return False
                return True
        return False

    def _end(self, children: Sequence[Child]) -> None:
        for child in children:
            child.process.terminate()
        last = time.monotonic() + END_S
        for child in children:
            child.process.join(max(0.0, last - time.monotonic()))
            if child.process.exitcode is None:
                child.process.kill()
                child.process.join()
            child.ready.close()
            self.calls[child.slot] = 0
            if METRICS_DIR in os.environ:  # else its calls would still be counted
                mark_process_dead(child.process.pid)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """A context manager that notes signals in place of being ended by them."""

        def note(number: int, frame: FrameType | None) -> None:
            self.signals.append(number)

        known = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = {each: signal.signal(each, note) for each in known}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _work(work: Callable[..., None], *arguments: Any) -> None:
    """Run `work`; end this process like SIGTERM if the one that started it is killed."""

    def end_alone() -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_alone, daemon=True).start()
    work(*arguments)


def refuse_elsewhere() -> None:
    """Raise UserError on a system that does not divide connections among processes."""
    if sys.platform != "linux":
        raise UserError("--workers needs Linux, which divides connections among processes")
