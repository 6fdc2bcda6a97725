"""Stores of calls as bytes, for calls without a connection and for a crash of the process.

The process that takes an entry owns it. Each `take` increases the entry's generation, and `put`
rejects an older generation. So a call continues in one place only, even if several processes share
a store and one of them has not noticed that its connection is dead.
"""

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from anyio import CapacityLimiter, fail_after, to_thread

from asrkit.errors import UserError, reason, shown

logger = logging.getLogger(__name__)

T = TypeVar("T")

MEMORY = ":memory:"  # SQLite's name of a database without a file
MOST_MEMORY, MOST_DISK, MOST_ENTRIES = 1 << 28, 1 << 31, 20_000  # bytes, bytes, calls
LOCK_S = 0.4  # time to wait for other processes, which write for milliseconds
PATIENCE_S = 0.5  # time that a call waits for the store
SWEEP_S = 2.0  # time between two removals of old calls
THREADS = 4

TABLES = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS calls (name TEXT PRIMARY KEY, generation INTEGER, data BLOB,
    owner TEXT, seconds REAL, written REAL, size INTEGER) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_owner ON calls (owner, seconds, written, size);
"""
PUT = """INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET
    generation = excluded.generation, data = excluded.data, owner = excluded.owner,
    seconds = excluded.seconds, written = excluded.written, size = excluded.size
    WHERE (generation, calls.seconds) <= (excluded.generation, excluded.seconds)"""
HAS = "SELECT 1 FROM calls WHERE name = ?"
# The client with the most bytes loses the call with the least audio: a flood of short calls does
# not remove the calls of other clients.
EVICT = """DELETE FROM calls WHERE name = (SELECT name FROM calls WHERE owner =
    (SELECT owner FROM calls GROUP BY owner ORDER BY sum(size) DESC LIMIT 1)
    ORDER BY seconds, written LIMIT 1)"""


class StoredCall(NamedTuple):
    generation: int
    data: bytes
    owner: str = ""  # address of the client
    seconds: float = 0.0  # length of the audio


class SqliteStore:
    """Entries in a table of SQLite, in memory or in a file that processes of one machine share.

    The methods may wait for the disk: call them in a thread. They raise OSError if the store cannot
    be used.

    Args:
        path: file, readable by its owner only, in a folder that is created if it is missing;
            MEMORY: no file.
        seconds: time after which an entry is removed.
        most: largest number of bytes of all entries.

    Attributes:
        survives: whether the entries outlive the process.

    Raises:
        UserError: if the file cannot be a store.
    """

    def __init__(self, path: Path | str, seconds: float, most: int | None = None) -> None:
        self.survives, self._path, self._seconds = path != MEMORY, path, seconds
        self._most = most or (MOST_DISK if self.survives else MOST_MEMORY)
        if self.survives:
            Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite's other files get the same permissions.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            os.chmod(path, 0o600)
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(
                path, timeout=LOCK_S, isolation_level=None, check_same_thread=False
            )
            self._db.executescript(TABLES)
        except sqlite3.Error as error:
            raise UserError(f"{shown(path)} cannot hold calls: {error}") from None

    def put(self, name: str, entry: StoredCall) -> bool:
        """Write an entry, unless the store has a newer one; return whether it did.

        An entry of the same generation is newer if it has more audio: a thread that nobody waits
        for any more may write late.
        """
        with self._changing() as db:
            row = (name, *entry, time.time(), len(entry.data))
            is_written = db.execute(PUT, row).rowcount > 0
            while self._is_full(db):
                db.execute(EVICT)
            if is_written and not db.execute(HAS, (name,)).fetchone():
                raise OSError("the store of calls has no room for another call")
        return is_written

    def take(self, name: str) -> StoredCall | None:
        """Return the entry with its new generation, or None if the store has no such entry."""
        with self._changing() as db:
            db.execute("UPDATE calls SET generation = generation + 1 WHERE name = ?", (name,))
            row = db.execute(
                "SELECT generation, data, owner, seconds FROM calls WHERE name = ? AND written > ?",
                (name, time.time() - self._seconds),
            ).fetchone()
        return row and StoredCall(*row)

    def drop(self, name: str, generation: int) -> None:
        """Remove the entry if it has this generation."""
        with self._changing() as db:
            db.execute("DELETE FROM calls WHERE name = ? AND generation = ?", (name, generation))

    def sweep(self) -> None:
        """Remove entries that are too old."""
        with self._changing() as db:
            db.execute("DELETE FROM calls WHERE written < ?", (time.time() - self._seconds,))

    def _is_full(self, db: sqlite3.Connection) -> bool:
        size, count = db.execute("SELECT total(size), count(*) FROM calls").fetchone()
        return bool(size > self._most or count > MOST_ENTRIES)

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """A transaction; TimeoutError if others have locked the file, OSError if it fails."""
        if not self._lock.acquire(timeout=LOCK_S):  # its thread waits for the disk
            raise TimeoutError(f"{shown(self._path)} does not answer")
        try:
            if self._path != MEMORY:
                os.stat(self._path)  # SQLite would go on with a file that was deleted
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            finally:
                self._db.execute("COMMIT")
        except sqlite3.Error as error:
            kind = TimeoutError if "locked" in str(error) else OSError
            raise kind(f"{shown(self._path)}: {error}") from error
        finally:
            self._lock.release()


class RedisStore:
    """Like `SqliteStore`, for processes on several machines.

    Args:
        url: `redis://host:port/0`, with a password if Redis needs one; `rediss://` for TLS.
        seconds: time after which an entry is removed.

    Raises:
        UserError: if Redis does not answer at this address.
    """

    survives = True

    def __init__(self, url: str, seconds: float) -> None:
        import redis

        self._seconds = seconds
        try:
            self._redis = redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1)
            self._redis.ping()
        except (redis.RedisError, ValueError) as error:
            raise UserError(f"Redis does not answer: {error}") from None
        # Redis runs scripts atomically.
        self._put = self._redis.register_script(
            "local there = redis.call('HMGET', KEYS[1], 'generation', 'seconds') "
            "local ahead = tonumber(there[1] or 0) - tonumber(ARGV[1]) "
            "local longer = tonumber(there[2] or 0) > tonumber(ARGV[3]) "
            "if ahead > 0 or (ahead == 0 and longer) then return 0 end "
            "redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'data', ARGV[2],"
            " 'seconds', ARGV[3]) redis.call('PEXPIRE', KEYS[1], ARGV[4]) return 1"
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
        arguments = [entry.generation, entry.data, entry.seconds, round(1000 * self._seconds)]
        return bool(self._run(self._put, name, arguments))

    def take(self, name: str) -> StoredCall | None:
        found = self._run(self._take, name, [])
        return None if found is None else StoredCall(int(found[0]), found[1])

    def drop(self, name: str, generation: int) -> None:
        self._run(self._drop, name, [generation])

    def sweep(self) -> None:
        self._run(self._drop, "", [""])  # Redis removes old entries itself

    def _run(self, script: Callable[..., Any], name: str, arguments: list[Any]) -> Any:
        """Run a script; TimeoutError if it takes too long, OSError if Redis fails."""
        import redis

        try:
            return script(keys=[f"asrkit:call:{name}"], args=arguments)
        except redis.TimeoutError as error:
            raise TimeoutError(f"Redis: {error}") from error
        except redis.RedisError as error:
            raise OSError(f"Redis: {error}") from error


Store: TypeAlias = SqliteStore | RedisStore


class AsyncStore:
    """A store for the event loop: its methods fail at once while the store does not answer.

    Args:
        store: store whose methods run in separate threads, if the store survives the process.
    """

    def __init__(self, store: Store) -> None:
        self.store, self.survives = store, store.survives
        self.is_down = False  # whether the store did not answer, or the last sweep failed
        self._threads = CapacityLimiter(THREADS)

    async def put(self, name: str, entry: StoredCall) -> bool:
        """Like `Store.put`; OSError if the store fails or does not answer."""
        return await self._run(lambda: self.store.put(name, entry))

    async def take(self, name: str) -> StoredCall | None:
        """Like `Store.take`; OSError if the store fails or does not answer."""
        return await self._run(lambda: self.store.take(name))

    async def drop(self, name: str, generation: int) -> None:
        """Like `Store.drop`; if that fails, `sweep` removes the entry later."""
        try:
            await self._run(lambda: self.store.drop(name, generation))
        except OSError as error:
            logger.warning("a call's state could not be removed: %s", reason(error))

    async def keep_swept(self) -> None:
        """Remove old entries every `SWEEP_S`, which also tries a store that did not answer."""
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self._run(self.store.sweep, PATIENCE_S + SWEEP_S, retries=True)
            except OSError as error:
                self._note_down(reason(error))
                continue
            if self.is_down:
                self.is_down = False
                logger.warning("the store of calls answers again")

    async def _run(
        self, work: Callable[[], T], patience: float = PATIENCE_S, retries: bool = False
    ) -> T:
        if not self.survives:
            return work()
        if self.is_down and not retries:
            raise OSError("the store does not answer")
        try:
            with fail_after(patience):
                return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
        except TimeoutError as error:
            self._note_down(str(error) or f"the store did not answer within {patience:g} s")
            raise OSError("the store does not answer") from None

    def _note_down(self, why: str) -> None:
        """Fail all methods at once until a sweep succeeds."""
        if not self.is_down:
            logger.warning("calls continue but are not saved: %s", why)
        self.is_down = True
