"""A session that computes its own steps."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from asrkit import audio
from asrkit.runtime.results import Result
from asrkit.runtime.steps import Steps
from asrkit.runtime.turns import Turns


class Session(Turns):
    """A stream of samples, whose result so far is available after each packet.

    The result does not depend on how the samples were split into packets. Unusable samples are
    rejected before anything changes. Any other exception, also Ctrl-C, ends the session. A call
    raises RuntimeError, and changes nothing, while another thread's call computes.
    """

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
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
            self._append(audio.mono(samples))
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
            self._commit()
            self._step()
            return self.result

    def finish(self) -> Result:
        """Return the final result. The last words need no extra samples.

        Raises:
            RuntimeError: after an exception that ended the session.
        """
        with self._alone():
            self._check()
            self._finish()
            self._step()
            return self.result

    def save(self, key: bytes | None = None) -> bytes:
        with self._alone():
            return super().save(key)

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

    def _step(self) -> None:
        """Compute all due steps of both passes: a batch of one."""
        steps = Steps()
        while (stream := self.stream).due or stream.ended_feats:
            with stream.changing():
                if stream.ended_feats:
                    steps.second_pass([stream])
                else:
                    steps.first_pass([stream], [stream.next_step])
                if stream.error is not None:
                    raise stream.error
