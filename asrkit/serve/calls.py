"""Calls: sessions of batchers in threads of their own, used from an event loop.

A `Desk` is one thread that owns a batcher and makes its steps. A `Call` is the event loop's side of
one of its sessions: audio goes in, news comes out, and neither side waits for the other's work.
"""

import asyncio
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from typing import Literal

import numpy as np

from asrkit.errors import UserError
from asrkit.runtime import BatchedSession, Batcher, Recognizer, Result, Segment, Word
from asrkit.runtime.results import Update

logger = logging.getLogger(__name__)

Request = Literal["commit", "end"]


class CallError(UserError):
    """A call ended before its time: the message says why."""


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


class Call:
    """A session as an event loop uses it. Made by `Desk.start`.

    Audio that the network has not taken is bounded: `accept` waits. News that nobody takes are
    merged, so a slow reader costs no memory but the text.
    """

    def __init__(self, desk: "Desk", max_ahead: float) -> None:
        self._desk, self._max_ahead = desk, max_ahead
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._news: deque[News] = deque()
        self._commits = 0
        self._error: BaseException | None = None
        self._over = False
        self.seconds = 0.0  # of audio accepted
        self.done = 0.0  # of them, those that the network has taken
        # The rest belongs to the desk's thread.
        self.session: BatchedSession | None = None
        self.last: Result | None = None
        self.sent: deque[np.ndarray | Request] = deque()  # added to by the event loop

    async def accept(self, samples: np.ndarray, sample_rate: int) -> None:
        """Take mono samples; waits while too many wait for the network.

        Raises:
            CallError: if the call is over.
        """
        while self.seconds - self.done > self._max_ahead and not self._over:
            self._changed.clear()
            await self._changed.wait()
        if self._over:
            raise CallError(self.why)
        self.seconds += len(samples) / sample_rate
        self._send(samples)

    def commit(self) -> None:
        """End the segment here."""
        self._send("commit")

    def end(self) -> None:
        """There is no more audio to come."""
        self._send("end")

    def _send(self, item: "np.ndarray | Request") -> None:
        self.sent.append(item)
        self._desk.post(lambda: self._desk.serve(self))

    def drop(self) -> None:
        """Nobody waits for the result any more."""
        self._over = True
        self._changed.set()
        self._desk.post(lambda: self._desk.drop(self))

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

    def tell(self, told: Callable[[], None]) -> None:
        """From the desk's thread: have the event loop do this, if it still runs."""
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(told)


class Desk:
    """A thread that owns a batcher: it takes what is posted, and makes steps while there are any.

    Args:
        recognizer: of the calls that name no other.
        max_ahead: seconds of audio of a call that may wait for the network.
        stepped: is told of each step how many rows it had and how many seconds it took.
    """

    def __init__(
        self,
        recognizer: Recognizer,
        max_ahead: float = math.inf,
        stepped: Callable[[int, float], None] = lambda rows, seconds: None,
    ) -> None:
        self.batcher, self.max_ahead, self.stepped = Batcher(recognizer), max_ahead, stepped
        self.calls: dict[BatchedSession, Call] = {}
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="asrkit-desk", daemon=True)
        self._thread.start()

    def post(self, work: Callable[[], None]) -> None:
        """Have the thread do this between two steps."""
        self._inbox.put(work)

    def start(self, sample_rate: int, recognizer: Recognizer | None = None) -> Call:
        """A new call, from the event loop.

        Args:
            sample_rate: of its samples, Hz: one that `asrkit.audio.Resampler` takes.
            recognizer: on the desk's backend; its own if None.
        """
        call = Call(self, self.max_ahead)

        def start() -> None:
            try:
                session = self.batcher.start(sample_rate, recognizer=recognizer)
            except Exception as error:
                self._lose(call, error)
                return
            call.session, call.last = session, session.result
            self.calls[session] = call

        self.post(start)
        return call

    def close(self) -> None:
        """End all calls and the thread."""
        self._inbox.put(None)
        self._thread.join()

    def serve(self, call: Call) -> None:
        """All that a call has sent by now, in its order; packets in a row are one: that is cheaper.

        What it raises ends this call alone.
        """
        sent = [call.sent.popleft() for _ in range(len(call.sent))]
        try:
            for request, items in groupby(sent, lambda item: item if isinstance(item, str) else ""):
                if call.session is None:
                    return
                if request:
                    call.session.commit() if request == "commit" else call.session.end()
                    self._publish(call)  # where no audio waits no step follows
                else:
                    call.session.accept(np.concatenate(list(items)))
        except Exception as error:
            self._lose(call, error)

    def drop(self, call: Call) -> None:
        if call.session is not None:
            self.calls.pop(call.session, None)
            self.batcher.drop(call.session)

    def _run(self) -> None:
        busy = False
        while (posted := self._posted(wait=not busy)) is not None:
            for work in posted:
                work()
            busy = self._step()
        self._fail_all(CallError("the server is closing"))
        self.batcher.close()

    def _posted(self, wait: bool) -> list[Callable[[], None]] | None:
        """What is posted by now; None when nothing more is to be done."""
        posted: list[Callable[[], None]] = []
        with suppress(queue.Empty):
            # No more than is there now: a step comes in between, however much is posted.
            for _ in range(max(1, self._inbox.qsize())):
                work = self._inbox.get(block=wait and not posted)
                if work is None:
                    return None
                posted.append(work)
        return posted

    def _step(self) -> bool:
        """A step, if there is anything to do."""
        started = time.perf_counter()
        try:
            moved = self.batcher.step()
        except Exception as error:  # of the network: it would come again with the next step
            logger.exception("a step of the network failed")
            self._fail_all(error)
            return False
        if moved:
            self.stepped(len(moved), time.perf_counter() - started)
        for session in moved:
            self._publish(self.calls[session])
        return bool(moved)

    def _fail_all(self, error: BaseException) -> None:
        for call in list(self.calls.values()):
            self._lose(call, error)

    def _publish(self, call: Call) -> None:
        """Tell a call what is new."""
        session = call.session
        if session is None:
            return
        if session.error is not None:
            self._lose(call, session.error)
            return
        result, seconds = session.result, session.taken
        new, call.last = result.since(call.last), result
        commits = session.commits
        call.tell(lambda: call.deliver(new, seconds, commits))
        if result.is_final:
            self.calls.pop(session, None)
            call.session = None

    def _lose(self, call: Call, error: BaseException) -> None:
        self.drop(call)
        call.session = None
        call.tell(lambda: call.fail(error))
