"""Tasks that any number of processes, on any machines, share through a folder.

The lease of a task is a file `NAME.lease.N`, where N is the number of the attempt. The owner
refreshes the file's modification time. A lease that was not refreshed for `seconds` has expired,
and the next attempt may start. Times are compared with the time of a new file in the same folder,
never with a machine's own clock.

Guarantees, if the file system creates files exclusively (O_EXCL):
- Only one process gets each attempt. While a task is not done, no lease is renamed or removed: a
  process that has seen attempt N expire can only create N + 1, and only once.
- The task of a process that ended is attempted again, and abandoned after ATTEMPTS attempts.

Not guaranteed: that a task has only one owner at a time. A process that was suspended for longer
than `seconds` continues beside its successor. Results must therefore not depend on the process, and
must be committed by a rename. A process that hangs, but refreshes its lease, keeps the lease.
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

ATTEMPTS = 3  # attempts at a task whose processes ended
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
                os.utime(self.path)  # the file system's time, not this machine's

    def __enter__(self) -> "Lease":
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.ended.set()
        self.thread.join()
        if kind is not None:
            at = RELEASED if issubclass(kind, KeyboardInterrupt) else FAILED
            with suppress(OSError):
                os.utime(self.path, (at, at))


class Leases:
    """The leases in a folder; each expires after `seconds` without a refresh."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds

    def path(self, name: str, number: int) -> Path:
        return self.folder / f"{name}.lease.{number}"

    def attempts(self, name: str) -> list[float]:
        """Return the time of the last refresh of each attempt's lease."""
        times = []
        with suppress(FileNotFoundError):
            for number in itertools.count():
                times.append(os.lstat(self.path(name, number)).st_mtime)
        return times

    def now(self) -> float:
        """Return the file system's time."""
        with tempfile.TemporaryFile(dir=self.folder) as file:
            return os.fstat(file.fileno()).st_mtime

    def expired(self, attempts: list[float]) -> bool:
        """Return whether the task has no owner. A lease with a time in the future has expired."""
        return not attempts or abs(self.now() - attempts[-1]) > self.seconds

    def given_up(self, name: str) -> bool:
        """Return whether an unfinished task has used all its attempts."""
        attempts = self.attempts(name)
        return sum(at != RELEASED for at in attempts) >= ATTEMPTS and self.expired(attempts)

    def claim(self, name: str) -> Lease | None:
        """Create the next attempt's lease; None if the task has an owner or gets another now."""
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
        """Remove the leases of a finished task: its result prevents further attempts."""
        for number in reversed(range(len(self.attempts(name)))):
            self.path(name, number).unlink(missing_ok=True)

    def work(
        self,
        names: Iterable[str],
        is_done: Callable[[str], bool],
        do: Callable[[str], None] | None = None,
    ) -> Iterator[str]:
        """Do tasks until each is done or abandoned, by this process or any other.

        Args:
            is_done: function that returns whether the result of a task exists and is complete.
            do: function that computes and commits a result; None only waits for other processes.

        Yields:
            The name of each finished task, once, and "" after each pass over unfinished tasks.
        """
        left = list(names)
        first = random.randrange(len(left)) if left and do else 0  # differs between processes
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
        """Try a task and return whether it is done; False if it has an owner or is abandoned."""
        if self.given_up(name) or not (lease := self.claim(name)):
            return False
        with lease:
            if not is_done(name):  # the last owner may have finished and removed its leases
                do(name)
        return True
