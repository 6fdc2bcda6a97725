"""A session as turns: a commit ends one stream and starts the next."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from asrkit import audio
from asrkit.errors import shown
from asrkit.runtime.results import Earlier, Result, Segment
from asrkit.runtime.serialization import pack, require
from asrkit.runtime.stream import Stream, StreamValue

PACKET_SECONDS = 30  # longest packet processed at once: bounds memory, not results


class TurnsValue(NamedTuple):
    """The stored values of a session; its other attributes are derived from these."""

    sample_rate: int
    hotwords: dict[str, float]
    segments: tuple[Segment, ...]  # segments of the ended turns
    seconds: float  # duration of their audio
    commits: int  # number of ended turns
    turns: tuple[StreamValue, ...]


class Turns:
    """Base class of sessions: the streams between commits, and the result of all of them.

    Steps only process the oldest turn that is not over. Later turns hold waiting audio.

    Args:
        begin: makes the stream of a turn.
        hotwords: phrases of only this session, which its streams already have.
        identity: makes the identity of the recogniser without these phrases, for saving.
    """

    def __init__(
        self,
        begin: Callable[[], Stream],
        hotwords: Mapping[str, float],
        identity: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._begin, self._hotwords, self._identity = begin, hotwords, identity
        self._turns = deque([begin()])  # the oldest first
        self._earlier = Earlier.of()  # results of earlier turns
        self._commits = 0  # number of earlier turns

    @property
    def stream(self) -> Stream:
        """Stream that steps process now."""
        self._follow()
        return self._turns[0]

    def _follow(self) -> None:
        """Keep the results of turns that are over, except the newest turn."""
        while len(self._turns) > 1 and self._turns[0].over and not self._turns[0].error:
            done = self._turns.popleft()
            self._commits += 1
            self._earlier = self._earlier.followed_by(done.result, done.seconds)

    @property
    def result(self) -> Result:
        """Result so far; final after `finish` and all steps.

        Raises:
            RuntimeError: if the session failed.
        """
        self._check()
        result, last = self.stream.result, len(self._turns) == 1
        if last and not self._earlier.seconds:
            return result
        return result.after(self._earlier, result.is_final and last)

    @property
    def error(self) -> BaseException | None:
        """Exception that ended the session, for example of its search or postprocess."""
        return next((each.error for each in self._turns if each.error is not None), None)

    @property
    def over(self) -> bool:
        """Whether the session is final, failed or cancelled."""
        return self.stream.over

    @property
    def commits(self) -> int:
        """Number of commits whose turns are over."""
        self._follow()
        return self._commits

    @property
    def seconds_waiting(self) -> float:
        """Seconds of appended audio that the network could process now."""
        return sum(each.due for each in self._turns) * audio.HOP / audio.SAMPLE_RATE

    @property
    def open_samples(self) -> int:
        """Number of samples of the newest turn, at the rate of the session."""
        return self._turns[-1].num_appended

    @property
    def seconds_processed(self) -> float:
        """Seconds of audio that the network has processed."""
        return self._earlier.seconds + self.stream.seconds_processed

    def save(self, key: bytes | None = None) -> bytes:
        """Return the session as bytes; `Recognizer.restore` continues it in any process.

        The bytes include audio that waits for a step.

        Args:
            key: key that authenticates the bytes by HMAC-SHA256. The bytes are not encrypted: they
                contain the text, and features of the latest audio.

        Raises:
            RuntimeError: if the session failed or was cancelled.
        """
        self._check()
        stream = self.stream
        if stream.over and not stream.result.is_final:
            raise RuntimeError("this session was cancelled and cannot be saved; start another one")
        value = TurnsValue(
            stream.sample_rate, dict(self._hotwords), self._earlier.segments.read(),
            self._earlier.seconds, self._commits, tuple(each.value for each in self._turns),
        )  # fmt: skip
        return pack(value, self._identity(), key)

    def _restore(self, value: TurnsValue) -> None:
        """Restore the value of a session that started like this one.

        Raises:
            ValueError: if the value is not valid.
        """
        require(value.seconds >= 0 and value.commits >= 0, "the earlier turns have negative sizes")
        require(bool(value.turns), "there is no stream")
        require(all(each.ended for each in value.turns[:-1]), "two streams are open")
        self._earlier = Earlier.of(value.segments, value.seconds)
        self._commits = value.commits
        self._turns.clear()
        for each in value.turns:
            self._turns.append(self._begin())
            self._turns[-1].restore(each)

    def _cancel(self) -> None:
        """End the session without a result and drop all waiting data."""
        for each in self._turns:
            each.cancel()

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
        if self._turns[-1].ended:
            raise RuntimeError("this session has ended; start another one")

    def _append(self, samples: np.ndarray) -> None:
        """Append mono samples to the newest turn, and compute steps if the session does so.

        Args:
            samples: (n,), from `audio.mono`.
        """
        newest = self._turns[-1]
        size = PACKET_SECONDS * newest.sample_rate
        for start in range(0, len(samples), size):
            with newest.changing():
                newest.append(samples[start : start + size])
            self._step()

    def _commit(self) -> None:
        """Finish the newest turn if it has audio, and start another one."""
        if self._turns[-1].seconds:
            self._finish()
            self._turns.append(self._begin())

    def _finish(self) -> None:
        """Finish the newest turn if it is open."""
        newest = self._turns[-1]
        if not newest.ended:
            with newest.changing():
                newest.finish()

    def _step(self) -> None:
        """Compute the due steps; a `Batcher` computes those of its sessions."""
