"""Workers: threads that own batchers and run the sessions of calls."""

import asyncio
import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import groupby

import numpy as np

from asrkit.runtime import BatchedSession, Batcher, Recognizer
from asrkit.serve.calls import Call, CallError, Item, SavedCall

logger = logging.getLogger(__name__)

ROUND_S = 0.01  # seconds between two steps in which calls are served
SHARED = 16  # an idle worker takes a step every 16th part of a chunk, which more calls then share
CLOSING = "the server is closing"


class Worker:
    """A thread that owns a batcher: it serves calls that are ready, and takes steps.

    The number of calls bounds the work: a call is in the queue once, however much its client has
    sent. The worker serves calls in the order in which they became ready, for ROUND_S between two
    steps. A chunk that comes soon after a step waits for others, unless calls are left from the
    round before, or a call has asked for its last text: a step of one row takes about twice the
    processor time of a row among many.

    Args:
        recognizer: default recogniser of the calls.
        max_ahead: seconds of a call's audio that may wait for the network.
    """

    def __init__(self, recognizer: Recognizer, max_ahead: float = math.inf) -> None:
        self.batcher, self.max_ahead = Batcher(recognizer), max_ahead
        spec = recognizer.engine.spec
        self._pause = spec.context.chunk_size * spec.rate.frame_ms / 1000 / SHARED
        self._last = 0.0  # start of the last step
        self._is_behind = False  # whether the last round ended before all calls were served
        self._posts: list[Callable[[], None]] = []  # for the event loop
        self.calls: set[Call] = set()  # started and not cancelled; the event loop's
        self._running: dict[BatchedSession, Call] = {}  # the thread's
        self._ready: dict[Call, None] = {}  # a queue in which each call is once
        self._changed = threading.Condition()  # guards the line above, and the next one
        self._closing = False
        self._asked = threading.Event()  # a call waits for its last text, or `close` for the end
        self._thread = threading.Thread(target=self._run, name="asrkit-worker", daemon=True)
        self._thread.start()

    # The event loop calls these four.

    def start(
        self,
        sample_rate: int,
        recognizer: Recognizer | None = None,
        saved: SavedCall | None = None,
        patient: bool = False,
    ) -> Call:
        """Start a call.

        Args:
            sample_rate: rate of the samples, Hz, that `asrkit.audio.Resampler` accepts.
            recognizer: recogniser on the worker's backend; the worker's own if None.
            saved: call from which to continue; the first update has all its segments again.
            patient: whether live calls have priority over this one.
        """
        begin = functools.partial(
            self.batcher.start, sample_rate, recognizer=recognizer, patient=patient
        )
        if saved is not None:
            begin = functools.partial(self.batcher.restore, saved.session, recognizer=recognizer)
        engine = (recognizer or self.batcher.recognizer).engine
        chunk_end = functools.partial(engine.chunk_end, sample_rate=sample_rate)
        self._loop = asyncio.get_running_loop()
        call = Call(
            sample_rate, self.max_ahead, saved or SavedCall(), begin, chunk_end, self._wake,
            self._cancel,
        )  # fmt: skip
        self.calls.add(call)
        if saved is not None:
            self._wake(call)
        return call

    def _wake(self, call: Call, has_asked: bool = False) -> None:
        """Have the thread serve a call between two steps.

        Args:
            call: call with items.
            has_asked: whether the client waits for the text of a segment that it has ended.
        """
        with self._changed:
            if not self._closing:
                self._ready[call] = None
                self._changed.notify()
                if has_asked:
                    self._asked.set()
                return
        call.fail(CallError(CLOSING))
        call.cancel_items()

    def _cancel(self, call: Call) -> None:
        """Have the thread free a call's session, if there is one."""
        self.calls.discard(call)
        with self._changed:
            self._ready.pop(call, None)
            if call.has_begun and not self._closing:
                self._ready[call] = None
                self._changed.notify()

    def close(self) -> None:
        """End all calls and the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
            self._asked.set()
        self._thread.join()

    # The rest runs in the thread.

    def _run(self) -> None:
        while self._serve_ready(wait=not self.batcher.is_due):
            self._step()
        self._fail_all([*self.calls], CallError(CLOSING))
        self._flush()
        self.batcher.close()

    def _serve_ready(self, wait: bool) -> bool:
        """Serve calls that are ready, for ROUND_S at most; False when the worker closes."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._ready) or self._closing or not wait)
        if wait and not self._is_behind:
            self._asked.wait(max(0.0, self._last + self._pause - time.perf_counter()))
        with self._changed:
            self._asked.clear()
            started = time.perf_counter()
            most = len(self._ready)  # calls that become ready meanwhile wait for the next step
        while most and time.perf_counter() - started < ROUND_S:
            most -= 1
            with self._changed:
                call = next(iter(self._ready), None)
                if self._closing or call is None:
                    break
                del self._ready[call]
                call.has_begun = True
            if call.is_cancelled:
                self._forget_session(call)
            else:
                self.serve(call)
        self._is_behind = most > 0
        return not self._closing

    def serve(self, call: Call) -> None:
        """Process all items of a call in their order; packets in a row are joined.

        An exception ends this call alone.
        """
        items = call.take_items()
        try:
            self._begin(call)
            for item in joined(items):
                if isinstance(item, asyncio.Future):
                    self._save(call, item)
                elif call.session is not None:
                    self._process(call, call.session, item)
        except Exception as error:
            self._fail(call, error)
            for item in items:
                if isinstance(item, asyncio.Future):
                    self._save(call, item)

    def _begin(self, call: Call) -> None:
        """Make the session of a call that has none yet."""
        begin, call.begin = call.begin, None
        if begin is not None:
            call.session = begin()
            self._running[call.session] = call
            if call.is_restored:
                self._report(call)

    def _process(self, call: Call, session: BatchedSession, item: Item) -> None:
        if isinstance(item, np.ndarray):
            session.accept(item)
            call.taken += len(item)
            return
        if item == "commit":
            session.commit()
            call.commits += 1
        else:
            session.finish()
        self._report(call)  # where no audio waits no step follows

    def _save(self, call: Call, saved: "asyncio.Future[SavedCall]") -> None:
        """Send the value of a call to the future that waits for it on the event loop."""
        answer: Callable[[], None]
        try:
            if call.session is None:
                raise CallError(call.why)
            value = SavedCall(call.session.save(), call.taken, call.commits)
            answer = functools.partial(saved.set_result, value)
        except Exception as error:
            answer = functools.partial(saved.set_exception, error)
        # The future may be cancelled by now.
        self._posts.append(lambda: None if saved.done() else answer())

    def _step(self) -> None:
        """Take a step; an error ends all calls, but not the thread."""
        started = time.perf_counter()
        try:
            moved = self.batcher.step()
            if moved:
                self._last = started
            for session in moved:
                self._report(self._running[session])
        except Exception as error:  # the next step would raise it again
            logger.exception("a step of the network failed")
            self._fail_all(list(self._running.values()), error)
        self._flush()

    def _report(self, call: Call) -> None:
        """Send a call its update."""
        session = call.session
        if session is None:
            return
        if session.error is not None:
            self._fail(call, session.error)
            return
        result = session.result
        new, call.reported = result.since(call.reported), result
        update = new, call.taken, session.seconds_processed, session.commits
        self._posts.append(lambda: call.deliver(*update))
        if result.is_final:
            self._running.pop(session, None)

    def _fail_all(self, calls: Iterable[Call], error: BaseException) -> None:
        for call in calls:
            self._fail(call, error)
            self._posts.append(call.cancel_items)

    def _fail(self, call: Call, error: BaseException) -> None:
        """End a call because of an error."""
        self._forget_session(call)
        self._posts.append(lambda: call.fail(error))

    def _flush(self) -> None:
        """Have the event loop call the functions of `_posts`, unless the loop is closed."""
        posts, self._posts = self._posts, []
        if posts:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call_each, posts)

    def _forget_session(self, call: Call) -> None:
        session, call.session = call.session, None
        if session is not None:
            self._running.pop(session, None)
            self.batcher.cancel(session)


def call_each(functions: Iterable[Callable[[], None]]) -> None:
    for function in functions:
        function()


def joined(items: Iterable[Item]) -> Iterator[Item]:
    """Join packets in a row."""
    for is_audio, group in groupby(items, lambda item: isinstance(item, np.ndarray)):
        alike = [*group]
        yield from [np.concatenate(alike)] if is_audio else alike  # type: ignore[arg-type]
