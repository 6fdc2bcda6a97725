"""A stream that makes its own steps."""

import numpy as np

from asrkit import audio
from asrkit.runtime.results import Result
from asrkit.runtime.stream import Stream


class Session:
    """One stream: takes samples as they come, answers with what is known so far.

    The result does not depend on how the samples were cut into packets. Samples that cannot be used
    are refused before anything has changed; any other exception, Ctrl-C too, ends the session.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def accept(self, samples: np.ndarray) -> Result:
        """Take any number of samples, also 0 or 1; the result so far.

        Args:
            samples: float32 in [-1, 1] or int16, (n,) or (n, channels).

        Raises:
            AudioError: for samples that cannot be used; the session is as it was before.
            RuntimeError: after `finish`, or after another exception.
        """
        self._stream.check_open()
        return self._accept(audio.mono(samples))

    def finish(self) -> Result:
        """The final result. Nothing has to be appended to flush the last words.

        Raises:
            RuntimeError: after an exception that ended the session.
        """
        self._stream.check()
        if not self._stream.over:
            with self._stream.changing():
                self._stream.end()
                self._step()
        return self._stream.result

    def _accept(self, mono: np.ndarray) -> Result:
        """As `accept`, of samples that `audio.mono` has made."""
        with self._stream.changing():
            for piece in self._stream.pieces(mono):
                self._stream.put(piece)
                self._step()
        return self._stream.result

    def _step(self) -> None:
        """All that is due, in both passes."""
        stream = self._stream
        while frames := stream.next_step:
            feats = stream.feats(frames)
            output = stream.engine.step_of([feats], stream.state)
            stream.give(output.log_probs[0, : int(output.lengths[0])], output.state, frames)
            self._settle()
        self._settle()

    def _settle(self) -> None:
        """The second pass of all that has ended."""
        stream = self._stream
        while stream.second is not None and stream.ended_feats:
            feats = stream.ended_feats[0]
            output = stream.second.step_of([feats], stream.second.init_state(1))
            stream.settle(output.log_probs[0, : int(output.lengths[0])])
