"""A session: the streams between commits."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from asrkit import audio
from asrkit.errors import shown
from asrkit.runtime.results import Result, Segment
from asrkit.runtime.serialization import pack
from asrkit.runtime.stream import Stream, StreamValue

PACKET_SECONDS = 30  # longest packet processed at once: bounds memory, not results


class SessionValue(NamedTuple):
    """The stored values of a session; its other attributes are derived from these."""

    sample_rate: int
    hotwords: dict[str, float]
    segments: tuple[Segment, ...]
    before: int  # number of samples of the streams that are over
    commits: int  # number of these streams
    streams: tuple[StreamValue, ...]


class Session:
    """A stream of samples, whose result so far is available after each packet.

    The result does not depend on how the samples were split into packets. Unusable samples are
    rejected before anything changes. Any other exception, also Ctrl-C, ends the session. A call
    raises RuntimeError, and changes nothing, while another thread's call computes.

    A commit starts another stream. Steps only process the oldest stream that is not over; later
    ones hold waiting audio.

    Args:
        begin: makes a stream, from the number of the session's samples before it and the list to
            which it appends its segments.
        hotwords: phrases of only this session, which its streams already have.
        identity: makes the identity of the recogniser without these phrases, for saving.
    """

    def __init__(
        self,
        begin: Callable[[int, list[Segment]], Stream],
        hotwords: Mapping[str, float],
        identity: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._begin, self._hotwords, self._identity = begin, hotwords, identity
        self._segments: list[Segment] = []  # of all streams
        self._streams = deque([begin(0, self._segments)])  # the oldest first
        self._commits = 0  # number of streams that are over
        self._lock = threading.Lock()

    def accept(self, samples: np.ndarray) -> Result:
        """Append any number of samples, also 0 or 1, and return the result so far.

        Args:
            samples: float32 in [-1, 1] or int16, (n,) or (n, channels).

        Raises:
            AudioError: for samples that cannot be used; the session has not changed.
            RuntimeError: after `finish`, or after another exception.
        """
        with self._alone():
            self._check_open()
            mono, newest = audio.mono(samples), self._streams[-1]
            size = PACKET_SECONDS * newest.sample_rate
            for start in range(0, len(mono), size):
                with self._stepping():
                    newest.append(mono[start : start + size])
            return self.result

    def commit(self) -> Result:
        """End the segment here, as `finish` would, and continue as a new stream; times continue.

        The text between two commits is that of `Recognizer.transcribe` for the samples between
        them. Without samples since the last commit nothing changes.

        Raises:
            RuntimeError: after `finish`, or after an exception that ended the session.
        """
        with self._alone():
            self._check_open()
            newest = self._streams[-1]
            if newest.num_appended:
                before = newest.before + newest.num_appended
                with self._stepping():
                    newest.finish()
                    self._streams.append(self._begin(before, self._segments))
            return self.result

    def finish(self) -> Result:
        """Return the final result. The last words need no extra samples.

        Raises:
            RuntimeError: after an exception that ended the session.
        """
        with self._alone():
            self._check()
            with self._stepping():
                if not self._streams[-1].ended:
                    self._streams[-1].finish()
            return self.result

    def save(self) -> bytes:
        """Return the session as bytes; `Recognizer.restore` continues it in any process.

        The bytes include audio that waits for a step. They are neither signed nor encrypted.

        Raises:
            RuntimeError: if the session failed or was cancelled.
        """
        with self._alone():
            self._check()
            stream = self.stream
            if stream.over and not stream.result.is_final:
                raise RuntimeError(
                    "this session was cancelled and cannot be saved; start another one"
                )
            value = SessionValue(
                stream.sample_rate, dict(self._hotwords), tuple(self._segments), stream.before,
                self._commits, tuple(part.value for part in self._streams),
            )  # fmt: skip
            return pack(value, self._identity())

    def _restore(self, value: SessionValue) -> None:
        """Restore the value of a session that started like this one."""
        self._segments += value.segments
        self._commits, before = value.commits, value.before
        self._streams.clear()
        for stored in value.streams:
            stream = self._begin(before, self._segments)
            stream.restore(stored)
            self._streams.append(stream)
            before += stream.num_appended

    @property
    def stream(self) -> Stream:
        """Stream that steps process now."""
        self._follow()
        return self._streams[0]

    def _follow(self) -> None:
        """Drop streams that are over, except the newest one."""
        while len(self._streams) > 1 and self._streams[0].over and not self._streams[0].error:
            self._streams.popleft()
            self._commits += 1
            self._streams[0].update_result()

    @property
    def result(self) -> Result:
        """Result so far; final after `finish` and all steps.

        Raises:
            RuntimeError: if the session failed.
        """
        self._check()
        return self.stream.result

    @property
    def error(self) -> BaseException | None:
        """Exception that ended the session, for example of its search or postprocess."""
        return next((stream.error for stream in self._streams if stream.error is not None), None)

    @property
    def over(self) -> bool:
        """Whether the session is final, failed or cancelled."""
        return self.stream.over

    @property
    def commits(self) -> int:
        """Number of commits whose streams are over."""
        self._follow()
        return self._commits

    @property
    def seconds_waiting(self) -> float:
        """Seconds of appended audio that the network could process now."""
        return sum(stream.due for stream in self._streams) * audio.HOP / audio.SAMPLE_RATE

    @property
    def seconds_processed(self) -> float:
        """Seconds of audio that the network has processed."""
        return self.stream.seconds_processed

    @contextmanager
    def _stepping(self) -> Iterator[None]:
        """Step after the block, also if an exception has ended the session."""
        try:
            yield
        finally:
            self._step()

    def _step(self) -> None:
        """Compute all due steps of both passes."""
        for stream in tuple(self._streams):  # a reader of results may drop ended ones meanwhile
            stream.run()

    def _cancel(self) -> None:
        """End the session without a result and drop all waiting data."""
        for stream in self._streams:
            stream.cancel()

    def _check(self) -> None:
        """Raise RuntimeError if the session failed."""
        if (error := self.error) is not None:
            kind, message = type(error).__name__, shown(str(error))
            raise RuntimeError(
                f"this session failed, start another one: {kind}({message})"
            ) from error

    def _check_open(self) -> None:
        """Raise RuntimeError if the session has ended or failed."""
        self._check()
        if self._streams[-1].ended:
            raise RuntimeError("this session has ended; start another one")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "another thread uses this session, which takes one at a time: start a session for "
                "each stream, or wait for the other call"
            )
        try:
            yield
        finally:
            self._lock.release()
