"""The streams of a session, one after another: a commit ends one, and the next begins as new."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from asrkit import audio
from asrkit.runtime.results import Earlier, Result, Segment
from asrkit.runtime.serialization import pack, require
from asrkit.runtime.stream import Stream, StreamValue


class StreamsValue(NamedTuple):
    """All of a session that cannot be derived."""

    sample_rate: int
    hotwords: dict[str, float]
    segments: tuple[Segment, ...]  # of the streams that are over
    seconds: float  # of their audio
    followed: int  # such streams
    waiting: tuple[StreamValue, ...]


class Streams:
    """The streams between the commits of a session, and the result of them all.

    Only the oldest that is not over takes steps; those after it hold audio that waits.

    Args:
        begin: makes a new stream.
        hotwords: of the session alone, which its streams have already.
        identity: of the recogniser without them, for saving.
    """

    def __init__(
        self,
        begin: Callable[[], Stream],
        hotwords: Mapping[str, float],
        identity: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._begin, self._hotwords, self._identity = begin, hotwords, identity
        self._waiting = deque([begin()])  # the oldest first
        self._earlier = Earlier.of()  # what the streams before them gave
        self._followed = 0  # such streams

    @property
    def stream(self) -> Stream:
        """The one that takes steps now."""
        self._follow()
        return self._waiting[0]

    def _follow(self) -> None:
        """Go on to the stream after those that are over, if there is one."""
        while len(self._waiting) > 1 and self._waiting[0].over and not self._waiting[0].error:
            done = self._waiting.popleft()
            self._followed += 1
            self._earlier = self._earlier.followed_by(done.result, done.seconds)

    @property
    def result(self) -> Result:
        """What is known so far; final if nothing more comes."""
        result, last = self.stream.result, len(self._waiting) == 1
        if last and not self._earlier.seconds:
            return result
        return result.after(self._earlier, result.is_final and last)

    @property
    def error(self) -> BaseException | None:
        """What ended one of them before its time."""
        return next((each.error for each in self._waiting if each.error is not None), None)

    @property
    def over(self) -> bool:
        """Whether they go no further."""
        return self.stream.over

    @property
    def num_waiting(self) -> int:
        """How many of them are not over, or have not begun."""
        self._follow()
        return len(self._waiting)

    @property
    def seconds_due(self) -> float:
        """Seconds of audio that could go through the network now."""
        frames = sum(each.due for each in self._waiting)
        return frames * audio.HOP / audio.SAMPLE_RATE

    @property
    def commits(self) -> int:
        """How many of them are over, each ended by a commit."""
        self._follow()
        return self._followed

    @property
    def seconds_taken(self) -> float:
        """Seconds of audio that the network has taken."""
        return self._earlier.seconds + self.stream.seconds_taken

    def check(self) -> None:
        """Raises RuntimeError if one failed."""
        for each in self._waiting:
            each.check()

    def check_open(self) -> None:
        """Raises RuntimeError if the session has ended or one failed."""
        self.check()
        self._waiting[-1].check_open()

    def put(self, piece: np.ndarray) -> None:
        """Mono samples of the newest stream, as many as `Stream.pieces` gives."""
        newest = self._waiting[-1]
        with newest.changing():
            newest.put(piece)

    def pieces(self, samples: np.ndarray) -> list[np.ndarray]:
        """Mono samples in pieces short enough to be worked on at once."""
        return self._waiting[-1].pieces(samples)

    def end(self) -> None:
        """There are no more samples to come."""
        newest = self._waiting[-1]
        if not newest.ended:
            with newest.changing():
                newest.end()

    def commit(self) -> None:
        """End the newest stream, if it has any audio, and begin another."""
        if self._waiting[-1].seconds:
            self.end()
            self._waiting.append(self._begin())

    def save(self, key: bytes | None) -> bytes:
        """The value of the streams, and what recogniser they are of, as bytes.

        Raises:
            RuntimeError: if one failed, or all were given up.
        """
        self._follow()
        value = StreamsValue(
            self._waiting[0].sample_rate, dict(self._hotwords), self._earlier.segments.read(),
            self._earlier.seconds, self._followed, tuple(each.value for each in self._waiting),
        )  # fmt: skip
        return pack(value, self._identity(), key)

    def restore(self, value: StreamsValue) -> None:
        """Go on from a value, of streams that began as these do.

        Raises:
            ValueError: if it cannot be one.
        """
        require(value.seconds >= 0 and value.followed >= 0, "the streams before are less than none")
        require(bool(value.waiting), "there is no stream")
        require(all(each.ended for each in value.waiting[:-1]), "two streams go on")
        self._earlier = Earlier.of(value.segments, value.seconds)
        self._followed = value.followed
        self._waiting.clear()
        for each in value.waiting:
            self._waiting.append(self._begin())
            self._waiting[-1].restore(each)

    def give_up(self) -> None:
        """Go no further, and keep nothing of what waits."""
        for each in self._waiting:
            each.give_up()
