"""Tasks that any number of processes, on any machines, share through a folder.

The lease of a task is a file `NAME.lease.N`, N the number of the attempt. Its owner refreshes the
file's modification time; a lease that has not been refreshed for `seconds` has expired, and the
next attempt may begin. Times are compared with that of a fresh file in the same folder, never with
a machine's own clock.

Guaranteed where the file system creates files exclusively (O_EXCL):
- Of all processes that want an attempt, one gets it. While a task is not done, no lease is renamed
  or removed: whoever has seen attempt N expire can only create N + 1, and only once.
- The task of a process that ended is attempted again, and is given up after ATTEMPTS of them.

Not guaranteed: that a task has one owner at a time. A process that was suspended for longer than
`seconds` goes on beside its successor. Results must therefore be the same whoever computes them,
and be committed by a rename. A process that hangs, but refreshes its lease, keeps it.
"""

import itertools
import os
import platform
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

ATTEMPTS = 3  # at a task, each of which ended with its process
RELEASED, FAILED = 0, 1  # modification times: stopped by the user, and ended by an exception


class Lease:
    """An attempt at a task, refreshed inside a `with` block by a thread.

    An exception ends the lease at once; KeyboardInterrupt does not count as an attempt.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.refresh, daemon=True)

    def refresh(self) -> None:
        while not self.ended.wait(self.seconds / 4):
            with suppress(OSError):  # removed: another process has finished the task
                os.utime(self.path)  # without a time, which would be this machine's

    def __enter__(self) -> "Lease":
        self.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ended.set()
        self.thread.join()
        if kind is not None:
            at = RELEASED if issubclass(kind, KeyboardInterrupt) else FAILED
            with suppress(OSError):
                os.utime(self.path, (at, at))


class Leases:
    """The leases in a folder.

    Args:
        folder: exists, and is the same for all processes.
        seconds: without a refresh after which a lease has expired.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds

    def path(self, name: str, number: int) -> Path:
        return self.folder / f"{name}.lease.{number}"

    def attempts(self, name: str) -> list[float]:
        """When the lease of each attempt was last refreshed."""
        times = []
        with suppress(FileNotFoundError):
            for number in itertools.count():
                times.append(os.lstat(self.path(name, number)).st_mtime)
        return times

    def now(self) -> float:
        """The file system's time."""
        with tempfile.TemporaryFile(dir=self.folder) as file:
            return os.fstat(file.fileno()).st_mtime

    def expired(self, attempts: list[float]) -> bool:
        """Whether nobody holds the task. A time in the future is no owner's either."""
        return not attempts or abs(self.now() - attempts[-1]) > self.seconds

    def given_up(self, name: str) -> bool:
        """Whether a task that is not done has had all its attempts."""
        attempts = self.attempts(name)
        return sum(at != RELEASED for at in attempts) >= ATTEMPTS and self.expired(attempts)

    def claim(self, name: str) -> Lease | None:
        """The next attempt at a task; None if it has an owner or another process was faster."""
        attempts = self.attempts(name)
        if not self.expired(attempts):
            return None
        path = self.path(name, len(attempts))
        try:
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return None
        with os.fdopen(file, "w") as owner:  # for people to read
            owner.write(f"{platform.node()} process {os.getpid()}\n")
        return Lease(path, self.seconds)

    def clear(self, name: str) -> None:
        """Remove the leases of a task that is done: who claims it now finds its result."""
        for number in reversed(range(len(self.attempts(name)))):
            self.path(name, number).unlink(missing_ok=True)

    def work(
        self,
        names: Iterable[str],
        is_done: Callable[[str], bool],
        do: Callable[[str], None] | None = None,
    ) -> Iterator[str]:
        """Do tasks until each is done or given up, by this process or any other.

        Args:
            names: of all tasks.
            is_done: whether the result of a task is there and complete.
            do: compute and commit the result of a task. None only waits for other processes.

        Yields:
            The name of each task that is done, once; and "" after each look at those that are not.
        """
        left = list(names)
        first = random.randrange(len(left)) if left and do else 0  # processes begin apart
        left = left[first:] + left[:first]
        while left:
            waiting = []
            for name in left:
                if is_done(name) or (do and self.attempt(name, is_done, do)):
                    self.clear(name)
                    yield name
                else:
                    waiting.append(name)
            yield ""
            if len(waiting) == len(left):
                if all(map(self.given_up, left)):
                    return
                time.sleep(min(self.seconds / 4, 0.5))
            left = waiting

    def attempt(self, name: str, is_done: Callable[[str], bool], do: Callable[[str], None]) -> bool:
        """Whether the task is done now; False if another process has it, or nobody may."""
        if self.given_up(name) or not (lease := self.claim(name)):
            return False
        with lease:
            if not is_done(name):  # as it may be since the leases of the last owner were removed
                do(name)
        return True
