"""Stores of calls as bytes, for calls without a connection and for a crash of the process.

The process that takes an entry owns it. Each `take` increases the entry's generation, and `put`
rejects an older generation. So a call continues in one place only, even if several processes share
a store and one of them has not noticed that its connection is dead.
"""

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from asrkit.atomic_write import replacing
from asrkit.errors import UserError, shown
from asrkit.extras import need
from asrkit.serve.places import StoreShares

LARGEST = 1 << 26  # bytes of an entry: a call of 4 hours has a hundredth of them
MOST_MEMORY = 1 << 28  # bytes of all entries in memory
MOST_DISK = 1 << 31  # bytes of all entries in a folder
MOST_ENTRIES = 20_000
HEAD = 8  # bytes of the generation in a file
LOCK_S = 0.4  # time to wait for a folder's lock, which others hold for milliseconds
SHORTEST_KEY = 16  # bytes


class StoredCall(NamedTuple):
    generation: int
    data: bytes
    owner: str = ""  # address of the client
    seconds: float = 0.0  # length of the audio


class Store(Protocol):
    """Entries by name. Methods may wait for a disk or a network: call them in a thread.

    Attributes:
        survives: whether the entries outlive the process.
    """

    survives: bool

    def put(self, name: str, entry: StoredCall) -> bool:
        """Write an entry, unless the store has a newer generation; return whether it did."""

    def take(self, name: str) -> StoredCall | None:
        """Return the entry with its new generation, or None if the store has no such entry.

        Raises:
            OSError: if the store cannot be reached.
        """

    def drop(self, name: str, generation: int) -> None:
        """Remove the entry if it has this generation."""

    def sweep(self) -> None:
        """Remove entries that are too old."""

    def check(self) -> None:
        """Raise OSError if the store cannot be used."""


class MemoryStore:
    """Entries in the memory of this process.

    Args:
        seconds: time after which an entry is removed.
    """

    survives = False

    def __init__(self, seconds: float) -> None:
        self._seconds, self._lock = seconds, threading.Lock()
        self._entries: dict[str, tuple[float, StoredCall]] = {}  # oldest first
        self._shares = StoreShares(MOST_MEMORY, MOST_ENTRIES)

    def put(self, name: str, entry: StoredCall) -> bool:
        with self._lock:
            if name in self._entries and self._entries[name][1].generation > entry.generation:
                return False
            self._entries.pop(name, None)
            self._entries[name] = time.monotonic(), entry
            for each in self._shares.add(name, len(entry.data), entry.owner, entry.seconds):
                del self._entries[each]
        return True

    def take(self, name: str) -> StoredCall | None:
        with self._lock:
            put, entry = self._entries.get(name, (0.0, None))
            if entry is None or time.monotonic() - put > self._seconds:
                return None
            taken = entry._replace(generation=entry.generation + 1)
            self._entries[name] = put, taken
        return taken

    def drop(self, name: str, generation: int) -> None:
        with self._lock:
            if name in self._entries and self._entries[name][1].generation == generation:
                self._remove(name)

    def sweep(self) -> None:
        with self._lock:
            oldest = time.monotonic() - self._seconds
            for name in [name for name, (put, _) in self._entries.items() if put < oldest]:
                self._remove(name)

    def check(self) -> None:
        """Pass: memory can always be used."""

    def _remove(self, name: str) -> None:
        self._entries.pop(name, None)
        self._shares.remove(name)


class FolderStore:
    """Entries as files of a folder that processes of one user on one machine share.

    Args:
        folder: folder of the files, created if it is missing.
        seconds: time after which an entry is removed.
        most: largest number of bytes of all entries.

    Raises:
        UserError: on a system that cannot lock files, and for a folder that others can read.
    """

    survives = True

    def __init__(self, folder: Path, seconds: float, most: int = MOST_DISK) -> None:
        try:
            import fcntl
        except ImportError:  # on Windows
            raise UserError("--state-dir needs POSIX file locks: use --redis here") from None
        self._lock_file = fcntl.flock
        self._exclusively = fcntl.LOCK_EX | fcntl.LOCK_NB
        self._folder, self._seconds, self._shares = folder, seconds, StoreShares(most, MOST_ENTRIES)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_private(folder)
        with suppress(OSError):  # the folder is locked: a later sweep removes old entries
            self.sweep()

    def put(self, name: str, entry: StoredCall) -> bool:
        with self._locked():
            there = self._read(name, HEAD)
            if there is not None and there.generation > entry.generation:
                return False
            gone = self._shares.add(name, len(entry.data), entry.owner, entry.seconds)
            for each in gone:
                self._path(each).unlink(missing_ok=True)
            if name in gone:
                raise OSError(f"{shown(self._folder)} has no room for another call")
            # A call does not outlive a power cut, so no caller waits for the disk.
            with replacing(self._path(name), is_private=True, flushes=False) as temporary:
                temporary.write_bytes(entry.generation.to_bytes(HEAD, "big") + entry.data)
        return True

    def take(self, name: str) -> StoredCall | None:
        with self._locked():
            entry = self._read(name, LARGEST)
            if entry is None or self._age(self._path(name)) > self._seconds:
                return None
            taken = entry._replace(generation=entry.generation + 1)
            with open(self._path(name), "r+b") as file:
                file.write(taken.generation.to_bytes(HEAD, "big"))
        return taken

    def drop(self, name: str, generation: int) -> None:
        with self._locked():
            there = self._read(name, HEAD)
            if there is not None and there.generation == generation:
                self._path(name).unlink()
                self._shares.remove(name)

    def sweep(self) -> None:
        sizes = {}
        with self._locked():
            for path in self._folder.glob("*.call"):
                if self._age(path) > self._seconds:
                    path.unlink()
                else:
                    sizes[path.stem] = path.stat().st_size
            self._shares.keep(sizes)

    def check(self) -> None:
        with self._locked():
            pass

    def key(self) -> bytes:
        """Return the key that all processes of the folder share; the first one creates it.

        Raises:
            UserError: if the key is too short.
        """
        path = self._folder / "key"
        with self._locked():
            if not path.exists():
                with replacing(path, is_private=True) as temporary:
                    temporary.write_bytes(secrets.token_bytes(32))
            path.chmod(0o600)
            key = path.read_bytes()
        if len(key) < SHORTEST_KEY:
            raise UserError(
                f"{shown(path)} has {len(key)} bytes, but a key must have {SHORTEST_KEY} or more: "
                "remove the file, and the server creates another one"
            )
        return key

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.call"

    def _age(self, path: Path) -> float:
        """Seconds since the file was written, on the clock that all processes share."""
        return time.time() - path.stat().st_mtime

    def _read(self, name: str, size: int) -> StoredCall | None:
        with suppress(FileNotFoundError), open(self._path(name), "rb") as file:
            return StoredCall(int.from_bytes(file.read(HEAD), "big"), file.read(size - HEAD))
        return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self._folder / "lock", "ab") as lock:
            until = time.monotonic() + LOCK_S
            while True:
                try:
                    self._lock_file(lock, self._exclusively)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        text = f"another process has held the folder's lock for {LOCK_S:g} s"
                        raise TimeoutError(f"{shown(self._folder)}: {text}") from None
                    time.sleep(0.005)
            yield


def make_private(folder: Path) -> None:
    """Make a folder of calls accessible to its owner only.

    Raises:
        UserError: if the folder belongs to another user, or if others can read it and it has
            other files.
    """
    about = folder.stat()
    if about.st_uid != os.getuid() and os.getuid() != 0:
        raise UserError(f"{shown(folder)} belongs to another user: name a folder of your own")
    if not about.st_mode & 0o077:
        return
    others = [path.name for path in folder.iterdir() if not is_own(path.name)]
    if others:
        raise UserError(
            f"{shown(folder)} is readable by other users and has other files "
            f"({shown(min(others), 40)}): name an empty folder, or chmod 700 this one"
        )
    folder.chmod(0o700)


def is_own(name: str) -> bool:
    """Whether a file of this name is one that a store creates."""
    return name in ("lock", "key") or name.endswith((".call", ".part"))


class RedisStore:
    """Entries in Redis, for processes on several machines.

    Args:
        url: `redis://host:port/0`, with a password if Redis needs one; `rediss://` for TLS.
        seconds: time after which an entry is removed.

    Raises:
        UserError: if Redis does not answer at this address.
    """

    survives = True

    def __init__(self, url: str, seconds: float) -> None:
        need("redis")
        import redis

        self._seconds, self._error = seconds, redis.RedisError
        self._timeout = redis.TimeoutError
        try:
            self._redis = redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1)
            self._redis.ping()
        except (redis.RedisError, ValueError) as error:
            raise UserError(f"Redis does not answer: {error}") from None
        # Redis runs scripts atomically.
        self._put = self._redis.register_script(
            "local there = redis.call('HGET', KEYS[1], 'generation') "
            "if there and tonumber(there) > tonumber(ARGV[1]) then return 0 end "
            "redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'data', ARGV[2]) "
            "redis.call('PEXPIRE', KEYS[1], ARGV[3]) return 1"
        )
        self._take = self._redis.register_script(
            "if redis.call('EXISTS', KEYS[1]) == 0 then return nil end "
            "redis.call('HINCRBY', KEYS[1], 'generation', 1) "
            "return redis.call('HMGET', KEYS[1], 'generation', 'data')"
        )
        self._drop = self._redis.register_script(
            "if redis.call('HGET', KEYS[1], 'generation') == ARGV[1] then "
            "redis.call('DEL', KEYS[1]) end"
        )

    def put(self, name: str, entry: StoredCall) -> bool:
        arguments = [entry.generation, entry.data, round(1000 * self._seconds)]
        return bool(self._run(self._put, name, arguments))

    def take(self, name: str) -> StoredCall | None:
        found = self._run(self._take, name, [])
        return None if found is None else StoredCall(int(found[0]), found[1])

    def drop(self, name: str, generation: int) -> None:
        self._run(self._drop, name, [generation])

    def sweep(self) -> None:
        """Do nothing: Redis removes old entries itself."""

    def check(self) -> None:
        self._asked(self._redis.ping)

    def _run(self, script: Callable[..., Any], name: str, arguments: list[Any]) -> Any:
        return self._asked(lambda: script(keys=[f"asrkit:call:{name}"], args=arguments))

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """Return Redis's answer; TimeoutError if it takes too long, OSError if Redis fails."""
        try:
            return ask()
        except self._timeout as error:
            raise TimeoutError(f"Redis: {error}") from error
        except self._error as error:
            raise OSError(f"Redis: {error}") from error
