"""A session that makes its own steps."""

import numpy as np

from asrkit import audio
from asrkit.runtime.results import Result
from asrkit.runtime.stream import Stream
from asrkit.runtime.turns import Streams


class Session:
    """One stream: takes samples as they come, answers with what is known so far.

    The result does not depend on how the samples were cut into packets. Samples that cannot be used
    are refused before anything has changed; any other exception, Ctrl-C too, ends the session.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def accept(self, samples: np.ndarray) -> Result:
        """Take any number of samples, also 0 or 1; the result so far.

        Args:
            samples: float32 in [-1, 1] or int16, (n,) or (n, channels).

        Raises:
            AudioError: for samples that cannot be used; the session is as it was before.
            RuntimeError: after `finish`, or after another exception.
        """
        self._streams.check_open()
        return self._accept(audio.mono(samples))

    def commit(self) -> Result:
        """End the segment here, as `finish` would, and go on as a new stream whose times go on.

        So the text between two commits is that of `Recognizer.transcribe` of the samples between
        them. Without samples since the last one nothing changes.

        Raises:
            RuntimeError: after `finish`, or after an exception that ended the session.
        """
        self._streams.check_open()
        self._streams.commit()
        return self._step()

    def finish(self) -> Result:
        """The final result. Nothing has to be appended to flush the last words.

        Raises:
            RuntimeError: after an exception that ended the session.
        """
        self._streams.check()
        self._streams.end()
        return self._step()

    def save(self, key: bytes | None = None) -> bytes:
        """The stream as bytes, with which `Recognizer.restore` goes on, here or elsewhere.

        Args:
            key: with which the bytes are authenticated, by HMAC-SHA256. They are not encrypted:
                the text is in them, and features of the latest audio.

        Raises:
            RuntimeError: if the session failed.
        """
        return self._streams.save(key)

    def _accept(self, mono: np.ndarray) -> Result:
        """As `accept`, of samples that `audio.mono` has made."""
        for piece in self._streams.pieces(mono):
            self._streams.put(piece)
            self._step()
        return self._streams.result

    def _step(self) -> Result:
        """All that is due, in both passes."""
        while self._advance(self._streams.stream):
            pass
        return self._streams.result

    def _advance(self, stream: Stream) -> bool:
        """A step of one pass, if one is due."""
        if stream.second is not None and stream.ended_feats:
            with stream.changing():
                feats = stream.ended_feats[0]
                output = stream.second.step_of([feats], stream.second.init_state(1))
                stream.settle(output.frames[0, : int(output.lengths[0])])
            return True
        frames = stream.next_step
        if frames:
            with stream.changing():
                feats = stream.feats(frames)
                output = stream.engine.step_of([feats], stream.state)
                stream.give(output.frames[0, : int(output.lengths[0])], output.state, frames)
        return bool(frames)
