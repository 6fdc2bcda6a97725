"""Calls as an event loop uses them. A `worker.Worker` runs their sessions in its thread.

A `Call` belongs to the event loop. Its inbox holds the items for the worker, which answers with
`deliver` and `fail`, called on the event loop. Neither side waits for the work of the other.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from asrkit.errors import UserError
from asrkit.runtime import BatchedSession, Result, Segment, Word
from asrkit.runtime.results import Update

MOST_CHANNELS = 8  # of a client's stream or file, each a call
MOST_ITEMS = 200  # packets of audio and requests of a call that wait for the worker


class CallError(UserError):
    """The reason why a call ended early."""


class SavedCall(NamedTuple):
    """A call as a value, from which `Worker.start` continues."""

    session: bytes = b""
    received: int = 0  # samples of the client
    commits: int = 0


Item: TypeAlias = "np.ndarray | Literal['commit', 'finish'] | asyncio.Future[SavedCall]"


@dataclass(eq=False)
class CallUpdate:
    """Changes of a call since the last update, merged until the client reads them or commits."""

    segments: list[Segment] = field(default_factory=list)  # new ones
    words: tuple[Word, ...] = ()  # of the open segment
    text: str = ""  # of these words
    stable_text: str = ""  # beginning of `text` that no later update changes
    seconds: float = 0.0  # seconds of the call's audio that the network has processed
    commits: int = 0  # number of commits of this session that are processed
    is_final: bool = False  # whether the call has ended
    ends_commit: bool = False  # whether later changes are another update

    def add(self, new: Update, seconds: float, commits: int) -> None:
        """Merge later changes into this update."""
        self.segments += new.segments
        self.words, self.text, self.stable_text = new.words, new.text, new.stable_text
        self.seconds, self.commits, self.is_final = seconds, commits, new.is_final


class Call:
    """A session as an event loop uses it. `Worker.start` makes it.

    The worker takes audio when it completes a chunk. Audio that waits for the network is bounded,
    and so are the items that wait for the worker: `accept` waits. Updates that nobody reads are
    merged, so that a slow reader costs only the memory of the text. The session begins with the
    first item that the worker takes.

    Args:
        sample_rate: rate of the samples, Hz.
        max_ahead: seconds of audio that may wait for the network.
        saved: call from which this one continues, without a session if it is new.
        begin: makes the session.
        chunk_end: returns the samples of a stream that complete its first n chunks.
        wake: makes the worker take the items of the inbox, soon if the client waits for a text.
        stop: makes the worker free the session.
    """

    def __init__(
        self,
        sample_rate: int,
        max_ahead: float,
        saved: SavedCall,
        begin: Callable[[], BatchedSession],
        chunk_end: Callable[[int], int],
        wake: Callable[..., None],
        stop: Callable[["Call"], None],
    ) -> None:
        self.sample_rate, self._max_ahead = sample_rate, max_ahead
        self._wake, self._stop = wake, stop
        self._chunk_end, self._chunks = chunk_end, 0  # chunks of the open turn that are complete
        self._end = chunk_end(1)  # samples of the open turn that complete the next chunk
        # Samples of the open turn; None: unknown, as this call has continued a turn.
        self._appended: int | None = None if saved.session else 0
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._updates: deque[CallUpdate] = deque()
        self._commits = 0
        self._error: BaseException | None = None
        self._over = False
        self.is_cancelled = False
        self.received = saved.received  # samples that the session has
        self.seconds = self.received / sample_rate  # audio accepted
        self.processed = self.seconds  # audio that the network has processed
        self.inbox: deque[Item] = deque()  # filled by the event loop, emptied by the worker
        # The worker's thread uses the following ones.
        self.begin: Callable[[], BatchedSession] | None = begin  # until the session begins
        self.session: BatchedSession | None = None
        self.is_restored = bool(saved.session)
        self.taken, self.commits = saved.received, saved.commits  # by the session
        self.reported: Result | None = None  # by the last update
        self.has_begun = False  # has a session, or failed to begin one; under the worker's lock

    async def wait_for_room(self) -> None:
        """Wait while too much audio waits for the network, or too many items for the worker.

        `accept` then does not wait.

        Raises:
            CallError: if the call is over.
        """
        while not self._over and (
            self.seconds - self.processed > self._max_ahead or len(self.inbox) >= MOST_ITEMS
        ):
            await self._wait()
        if self._over:
            raise CallError(self.why) from self._error

    async def accept(self, samples: np.ndarray) -> None:
        """Append mono samples, once there is room.

        Raises:
            CallError: if the call is over.
        """
        await self.wait_for_room()
        self.append(samples)

    def append(self, samples: np.ndarray) -> None:
        """Append mono samples; after `wait_for_room`."""
        self.seconds += len(samples) / self.sample_rate
        if not self._over:
            self.inbox.append(samples)
            if self._completes(len(samples)) or len(self.inbox) >= MOST_ITEMS // 2:
                self._wake(self)

    def _completes(self, samples: int) -> bool:
        """Return whether more samples complete a chunk, or may."""
        if self._appended is None:
            return True
        chunks, self._appended = self._chunks, self._appended + samples
        while self._appended >= self._end:
            self._chunks += 1
            self._end = self._chunk_end(self._chunks + 1)
        return self._chunks > chunks

    def commit(self) -> None:
        """End the segment here."""
        self._appended = self._chunks = 0
        self._end = self._chunk_end(1)
        self._send("commit")

    def finish(self) -> None:
        """Finish the call: no more audio comes."""
        self._send("finish")

    def _send(self, item: Item) -> None:
        if not self._over:
            self.inbox.append(item)
            self._wake(self, True)

    def save(self) -> "asyncio.Future[SavedCall]":
        """Return the future of the call as a value, with all audio accepted until now.

        Raises:
            CallError: if the call failed.
        """
        if self.is_cancelled or self._error is not None:
            raise CallError(self.why) from self._error
        saved: asyncio.Future[SavedCall] = self._loop.create_future()
        self.inbox.append(saved)
        self._wake(self)
        return saved

    def cancel(self) -> None:
        """End the call without a result, and free its session."""
        if self.is_cancelled:
            return
        self._over = self.is_cancelled = True
        self._changed.set()
        self.cancel_items()
        self._stop(self)

    def cancel_items(self) -> None:
        """Drop the items that wait for the worker."""
        while self.inbox:
            item = self.inbox.popleft()
            if isinstance(item, asyncio.Future) and not item.done():
                item.set_exception(CallError(self.why))

    @property
    def has_audio(self) -> bool:
        """Whether the client has sent audio, by this connection or an earlier one."""
        return self.seconds > 0

    @property
    def why(self) -> str:
        """The reason why the call is over."""
        return "the call has ended" if self._error is None else str(self._error)

    async def next_update(self) -> CallUpdate | None:
        """Wait for the next update; None after the final one.

        Raises:
            CallError: if the session failed.
        """
        while not (self._updates or self._over):
            await self._wait()
        if self._updates:
            return self._updates.popleft()
        if self._error is not None:
            raise CallError(self.why) from self._error
        return None

    async def segments(self) -> list[Segment]:
        """Wait for the end of the call, and return all segments that were not read."""
        segments: list[Segment] = []
        while (update := await self.next_update()) is not None:
            segments += update.segments
        return segments

    async def _wait(self) -> None:
        """Wait until the state of the call changes."""
        self._changed.clear()
        await self._changed.wait()

    def deliver(self, new: Update, received: int, seconds: float, commits: int) -> None:
        """Add changes from the worker.

        Args:
            new: changes of the result.
            received: samples that the session has.
            seconds: audio that the network has processed.
            commits: number of commits of this session that are processed.
        """
        if not self._updates or self._updates[-1].ends_commit:
            self._updates.append(CallUpdate())
        self._updates[-1].add(new, seconds, commits)
        self._updates[-1].ends_commit = commits > self._commits
        self._commits = commits
        self.received, self.processed = received, seconds
        self._over = self._over or new.is_final
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        """End the call because of an error, unless it is over."""
        if not self._over:
            self._error, self._over = error, True
        self._changed.set()

    # The worker's thread calls the following two.

    def take_items(self) -> list[Item]:
        """Return and remove all items that wait, which makes room for more."""
        items: list[Item] = []
        with suppress(IndexError):  # the event loop may drop them meanwhile
            while True:
                items.append(self.inbox.popleft())
        if len(items) >= MOST_ITEMS:
            self.post(self._changed.set)
        return items

    def post(self, action: Callable[[], None]) -> None:
        """Have the event loop call a function, unless the loop is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(action)
