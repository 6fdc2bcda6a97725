"""Desks: threads that own batchers and make their steps."""

import asyncio
import functools
import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby

import numpy as np

from asrkit.runtime import BatchedSession, Batcher, Recognizer
from asrkit.serve.calls import Call, CallError, SavedCall

logger = logging.getLogger(__name__)


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

    def start(
        self,
        sample_rate: int,
        recognizer: Recognizer | None = None,
        saved: SavedCall | None = None,
    ) -> Call:
        """A new call, from the event loop.

        Args:
            sample_rate: of its samples, Hz: one that `asrkit.audio.Resampler` takes.
            recognizer: on the desk's backend; its own if None.
            saved: what it goes on with; its first news then has all segments again.
        """
        call = Call(self, sample_rate, saved)

        def start() -> None:
            try:
                if saved is None:
                    session = self.batcher.start(sample_rate, recognizer=recognizer)
                else:
                    session = self.batcher.restore(saved.session, recognizer=recognizer)
            except Exception as error:
                self._lose(call, error)
                return
            call.session = session
            self.calls[session] = call
            if saved is not None:
                self._publish(call)

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
                if request == "commit":
                    for _ in items:
                        call.session.commit()
                        call.commits += 1
                    self._publish(call)  # where no audio waits no step follows
                elif request == "end":
                    call.session.end()
                    self._publish(call)
                else:
                    samples = np.concatenate(list(items))
                    call.session.accept(samples)
                    call.received += len(samples)
        except Exception as error:
            self._lose(call, error)

    def save(self, call: Call, saved: "asyncio.Future[SavedCall]") -> None:
        """The value of a call, for whoever waits on the event loop."""
        self.serve(call)
        answer: Callable[[], None]
        try:
            if call.session is None:
                raise CallError(call.why)
            value = SavedCall(call.session.save(), call.received, call.commits)
            answer = functools.partial(saved.set_result, value)
        except Exception as error:
            answer = functools.partial(saved.set_exception, error)
        call.tell(lambda: None if saved.done() else answer())  # it may be cancelled by now

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

    def _lose(self, call: Call, error: BaseException) -> None:
        self.drop(call)
        call.session = None
        call.tell(lambda: call.fail(error))
