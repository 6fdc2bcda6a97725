"""Desks: threads that own batchers and make their steps."""

import asyncio
import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import numpy as np

from asrkit.runtime import BatchedSession, Batcher, Recognizer
from asrkit.serve.worker import Call, CallError, Item, SavedCall

logger = logging.getLogger(__name__)

ROUND_S = 0.01  # seconds between two steps in which calls are served
CLOSING = "the server is closing"


class Desk:
    """A thread that owns a batcher: it serves calls that are ready, and makes steps.

    Its work is bounded by its calls: each waits in the queue once, however much it has sent. They
    are served in the order in which they became ready, for ROUND_S between two steps.

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
        self.open = 0  # calls that were started and not dropped
        self._ready: dict[Call, None] = {}  # a queue in which each call is once
        self._begun: set[Call] = set()  # that have a session, or failed to
        self._changed = threading.Condition()  # guards the lines above, and the next one
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="asrkit-desk", daemon=True)
        self._thread.start()

    def start(
        self,
        sample_rate: int,
        recognizer: Recognizer | None = None,
        saved: SavedCall | None = None,
        patient: bool = False,
    ) -> Call:
        """A new call, from the event loop.

        Args:
            sample_rate: of its samples, Hz: one that `asrkit.audio.Resampler` takes.
            recognizer: on the desk's backend; its own if None.
            saved: what it goes on with; its first news then has all segments again.
            patient: whether live calls come first.
        """
        call = Call(self, sample_rate, recognizer, saved, patient)
        self.open += 1
        if saved is not None:
            self.ready(call)
        return call

    def ready(self, call: Call) -> None:
        """Have the thread serve a call between two steps. From the event loop."""
        with self._changed:
            if not self._closing:
                self._ready[call] = None
                self._changed.notify()
                return
        call.fail(CallError(CLOSING))
        call.cancel_items()

    def drop(self, call: Call) -> None:
        """Have the thread free a call's session, if it has one. Once, from the event loop."""
        self.open -= 1
        with self._changed:
            self._ready.pop(call, None)
            if call in self._begun and not self._closing:
                self._ready[call] = None
                self._changed.notify()

    def close(self) -> None:
        """End all calls and the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def serve(self, call: Call) -> None:
        """All that a call has sent by now, in its order; packets in a row are one: that is cheaper.

        What it raises ends this call alone.
        """
        items = call.taken_items()
        try:
            self._begin(call)
            for kind, alike in groupby(items, kind_of):
                if kind == "save":
                    for saved in alike:
                        self._save(call, saved)  # type: ignore[arg-type]
                elif call.session is not None:
                    self._take(call, kind, list(alike))
        except Exception as error:
            self._lose(call, error)
            for item in items:
                if isinstance(item, asyncio.Future):
                    self._save(call, item)

    def _begin(self, call: Call) -> None:
        """Make the session of a call that has none yet."""
        begin, call.begin = call.begin, None
        if begin is None:
            return
        is_saved = call.received or call.commits
        call.session = begin()
        self.calls[call.session] = call
        if is_saved:
            self._publish(call)

    def _take(self, call: Call, kind: str, items: list[Any]) -> None:
        """Items of one kind into a call's session."""
        session = call.session
        assert session is not None
        if kind == "commit":
            for _ in items:
                session.commit()
                call.commits += 1
            self._publish(call)  # where no audio waits no step follows
        elif kind == "end":
            session.finish()
            self._publish(call)
        else:
            samples = np.concatenate(items)
            session.accept(samples)
            call.received += len(samples)

    def _save(self, call: Call, saved: "asyncio.Future[SavedCall]") -> None:
        """The value of a call, for whoever waits on the event loop."""
        answer: Callable[[], None]
        try:
            if call.session is None:
                raise CallError(call.why)
            value = SavedCall(call.session.save(), call.received, call.commits)
            answer = functools.partial(saved.set_result, value)
        except Exception as error:
            answer = functools.partial(saved.set_exception, error)
        call.tell(lambda: None if saved.done() else answer())  # it may be cancelled by now

    def _run(self) -> None:
        busy = False
        while self._serve_ready(wait=not busy):
            busy = self._step()
        with self._changed:
            waiting = list(self._ready)
        self._fail(dict.fromkeys([*self.calls.values(), *waiting]), CallError(CLOSING))
        self.batcher.close()

    def _serve_ready(self, wait: bool) -> bool:
        """Serve calls that are ready, for ROUND_S at most; False when the desk closes."""
        started = time.perf_counter()
        with self._changed:
            self._changed.wait_for(lambda: bool(self._ready) or self._closing or not wait)
            most = len(self._ready)  # those that become ready meanwhile come after the next step
        while most and time.perf_counter() - started < ROUND_S:
            most -= 1
            with self._changed:
                call = next(iter(self._ready), None)
                if self._closing or call is None:
                    break
                del self._ready[call]
                self._begun.add(call)
            if call.dropped:
                self._free(call)
            else:
                self.serve(call)
        return not self._closing

    def _free(self, call: Call) -> None:
        """Forget a call that is over."""
        with self._changed:
            self._begun.discard(call)
        session, call.session, call.begin, call.last = call.session, None, None, None
        if session is not None:
            self.calls.pop(session, None)
            self.batcher.cancel(session)

    def _step(self) -> bool:
        """A step, if there is anything to do."""
        started = time.perf_counter()
        try:
            moved = self.batcher.step()
        except Exception as error:  # of the network: it would come again with the next step
            logger.exception("a step of the network failed")
            self._fail(list(self.calls.values()), error)
            return False
        if moved:
            self.stepped(len(moved), time.perf_counter() - started)
        for session in moved:
            self._publish(self.calls[session])
        return bool(moved)

    def _fail(self, calls: Iterable[Call], error: BaseException) -> None:
        for call in calls:
            self._lose(call, error)
            call.tell(call.cancel_items)

    def _publish(self, call: Call) -> None:
        """Send a call what is new."""
        session = call.session
        if session is None:
            return
        if session.error is not None:
            self._lose(call, session.error)
            return
        result, seconds = session.result, session.seconds_processed
        new, call.last = result.since(call.last), result
        commits = session.commits
        call.tell(lambda: call.deliver(new, seconds, commits))
        if result.is_final:
            self.calls.pop(session, None)

    def _lose(self, call: Call, error: BaseException) -> None:
        """End a call because of an error."""
        session, call.session = call.session, None
        if session is not None:
            self.calls.pop(session, None)
            self.batcher.cancel(session)
        call.tell(lambda: call.fail(error))


def kind_of(item: Item) -> str:
    """What is to be done with an item."""
    if isinstance(item, str):
        return item
    return "save" if isinstance(item, asyncio.Future) else "audio"
