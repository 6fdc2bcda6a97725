"""Calls: sessions of a desk's batcher, used from an event loop.

A `Desk` is one thread that owns a batcher and makes its steps. A `Call` is the event loop's side of
one of its sessions: audio goes in, news comes out, and neither side waits for the other's work.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from asrkit.errors import UserError
from asrkit.runtime import BatchedSession, Batcher, Recognizer, Result, Segment, Word
from asrkit.runtime.results import Update

MOST_ITEMS = 200  # of a call that wait for its desk: packets of audio, however short, and requests


class CallError(UserError):
    """A call ended before its time: the message says why."""


class SavedCall(NamedTuple):
    """A call as a value, with which `Desk.start` goes on."""

    session: bytes
    received: int  # samples of its client
    commits: int


Item: TypeAlias = "np.ndarray | Literal['commit', 'end'] | asyncio.Future[SavedCall]"


class News:
    """What is new in a call since the last news, merged while nobody takes it, up to a commit.

    Attributes:
        segments: that ended.
        words: of the open segment.
        text: of these.
        stable_text: the beginning of this text that is never taken back.
        seconds: of the call's audio that these are from.
        commits: that have been followed by now.
        is_final: whether the call has ended.
    """

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.words: tuple[Word, ...] = ()
        self.text = self.stable_text = ""
        self.seconds, self.commits, self.is_final = 0.0, 0, False
        self.ends_commit = False  # what comes after it is not merged

    def add(self, new: Update, seconds: float, commits: int) -> None:
        """Add what is newer."""
        self.segments += new.segments
        self.words, self.text, self.stable_text = new.words, new.text, new.stable_text
        self.seconds, self.commits, self.is_final = seconds, commits, new.is_final


class Worker(Protocol):
    """The thread that makes the steps of calls, as calls see it: `desk.Desk`."""

    batcher: Batcher
    max_ahead: float  # seconds

    def ready(self, call: "Call") -> None:
        """Take the items of a call that wait."""

    def drop(self, call: "Call") -> None:
        """Forget a call."""


class Call:
    """A session as an event loop uses it. Made by `Desk.start`.

    Audio that the network has not taken is bounded, and so are the items that the desk has not:
    `accept` waits. News that nobody takes are merged, so a slow reader costs no memory but the
    text. The session begins with the first item, on the desk's thread.

    Args:
        desk: whose thread makes its steps.
        sample_rate: of its samples, Hz.
        recognizer: on the desk's backend; its own if None.
        saved: what it goes on with.
        patient: whether live calls come first.
    """

    def __init__(
        self,
        desk: Worker,
        sample_rate: int,
        recognizer: Recognizer | None = None,
        saved: SavedCall | None = None,
        patient: bool = False,
    ) -> None:
        self._desk, self._sample_rate = desk, sample_rate
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._news: deque[News] = deque()
        self._commits = 0
        self._error: BaseException | None = None
        self._over = False
        self.received = 0 if saved is None else saved.received  # samples that the session has
        self.commits = 0 if saved is None else saved.commits
        self.seconds = self.received / sample_rate  # of audio accepted
        self.done = self.seconds  # of them, those that the network has taken
        self.sent: deque[Item] = deque()  # appended to by the event loop, emptied by the desk
        self.dropped = False  # set by the event loop
        # The rest belongs to the desk's thread.
        self.begin: Callable[[], BatchedSession] | None = self._beginning(
            recognizer, saved, patient
        )
        self.session: BatchedSession | None = None
        self.last: Result | None = None

    def _beginning(
        self, recognizer: Recognizer | None, saved: SavedCall | None, patient: bool
    ) -> Callable[[], BatchedSession]:
        """A function that makes the session; the value of a saved call is freed with it."""
        batcher, rate = self._desk.batcher, self._sample_rate
        if saved is None:
            return lambda: batcher.start(rate, recognizer=recognizer, patient=patient)
        return lambda: batcher.restore(saved.session, recognizer=recognizer)

    async def room(self) -> None:
        """Wait while too much audio waits for the network, or too many items for the desk.

        `accept` does not wait after it.

        Raises:
            CallError: if the call is over.
        """
        while not self._over and (
            self.seconds - self.done > self._desk.max_ahead or len(self.sent) >= MOST_ITEMS
        ):
            self._changed.clear()
            await self._changed.wait()
        if self._over:
            raise CallError(self.why) from self._error

    async def accept(self, samples: np.ndarray) -> None:
        """Take mono samples, once there is room.

        Raises:
            CallError: if the call is over.
        """
        await self.room()
        self.seconds += len(samples) / self._sample_rate
        self._send(samples)

    def commit(self) -> None:
        """End the segment here."""
        self._send("commit")

    def end(self) -> None:
        """There is no more audio to come."""
        self._send("end")

    def _send(self, item: Item) -> None:
        if self._over:
            return
        if len(self.sent) >= 2 * MOST_ITEMS:  # requests, which do not wait
            self.fail(CallError(f"{len(self.sent)} requests wait already: send them more slowly"))
            self.drop()
            return
        self.sent.append(item)
        self._desk.ready(self)

    async def save(self) -> SavedCall:
        """The call as a value, with all that was accepted.

        Raises:
            CallError: if it failed.
        """
        if self.dropped or self._error is not None:
            raise CallError(self.why) from self._error
        saved: asyncio.Future[SavedCall] = self._loop.create_future()
        self.sent.append(saved)
        self._desk.ready(self)
        return await saved

    def drop(self) -> None:
        """Nobody waits for the result any more: what waits for the desk is cancelled."""
        if self.dropped:
            return
        self._over = self.dropped = True
        self._changed.set()
        self.cancel_items()
        self._desk.drop(self)

    def cancel_items(self) -> None:
        """On the event loop: forget what waits for the desk."""
        while self.sent:
            item = self.sent.popleft()
            if isinstance(item, asyncio.Future) and not item.done():
                item.set_exception(CallError(self.why))

    @property
    def has_audio(self) -> bool:
        """Whether its client has sent any, also before it came back."""
        return self.seconds > 0

    @property
    def why(self) -> str:
        """Why the call is over."""
        return "the call has ended" if self._error is None else str(self._error)

    async def news(self) -> News | None:
        """What is new, as soon as there is anything; None after the final one.

        Raises:
            CallError: if the session failed.
        """
        while (news := self.take()) is None and not self._over:
            self._changed.clear()
            await self._changed.wait()
        return news

    def take(self) -> News | None:
        """What is new by now, if there is anything.

        Raises:
            CallError: if the session failed.
        """
        if self._news:
            return self._news.popleft()
        if self._error is not None:
            raise CallError(self.why) from self._error
        return None

    async def segments(self) -> list[Segment]:
        """All segments that are still to come, when the last one has ended."""
        segments: list[Segment] = []
        while (news := await self.news()) is not None:
            segments += news.segments
        return segments

    def deliver(self, new: Update, seconds: float, commits: int) -> None:
        """On the event loop: what is new, of so many seconds of audio and commits."""
        if not self._news or self._news[-1].ends_commit:
            self._news.append(News())
        self._news[-1].add(new, seconds, commits)
        self._news[-1].ends_commit = commits > self._commits
        self._commits = commits
        self.done, self._over = seconds, self._over or new.is_final
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        """On the event loop: the session is over because of this."""
        self._error, self._over = error, True
        self._changed.set()

    def taken_items(self) -> list[Item]:
        """On the desk's thread: all items that wait, which makes room for more."""
        items: list[Item] = []
        with suppress(IndexError):  # the event loop may drop them meanwhile
            while len(items) < 2 * MOST_ITEMS:
                items.append(self.sent.popleft())
        if len(items) >= MOST_ITEMS:
            self.tell(self._changed.set)
        return items

    def tell(self, told: Callable[[], None]) -> None:
        """From the desk's thread: have the event loop do this, if it still runs."""
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(told)
