"""Many streams, each where it is, in one step of the network."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import torch

from asrkit import audio
from asrkit.errors import UserError, shown, whole_number
from asrkit.model import FULL_CONTEXT, EncoderState
from asrkit.runtime.recognizer import Phrases, Recognizer
from asrkit.runtime.results import Result
from asrkit.runtime.stream import Stream

# Of audio in a step of the second pass of several streams: live chunks wait for it. Of 50 streams
# one live result in a hundred came later than 120 ms with 30 s, and than 80 ms with 10 s.
MOST_ENDED_MS = 10_000


class BatchedSession:
    """One stream among those of a batcher, whose steps take it on.

    Its results are those of a session of its own, and so are its exceptions: one that comes up in
    a step is the session's `error`, and the others go on.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    @property
    def result(self) -> Result:
        """What is known so far; final after `end` and the steps that take what was left.

        Raises:
            RuntimeError: if the session failed, because of its `error`.
        """
        self._stream.check()
        return self._stream.result

    @property
    def error(self) -> BaseException | None:
        """What ended the session before its time, as an exception of its search or postprocess."""
        return self._stream.error

    @property
    def waiting(self) -> float:
        """Seconds of audio that could go through the network now."""
        return self._stream.due * audio.HOP / audio.SAMPLE_RATE

    def accept(self, samples: np.ndarray) -> None:
        """Take any number of samples, also 0 or 1.

        Args:
            samples: float32 in [-1, 1] or int16, (n,) or (n, channels).

        Raises:
            AudioError: for samples that cannot be used; the session is as it was before.
            RuntimeError: after `end`, after `Batcher.drop`, or if the session failed.
        """
        self._stream.check_open()
        samples = audio.mono(samples)
        with self._stream.changing():
            for piece in self._stream.pieces(samples):
                self._stream.put(piece)

    def end(self) -> None:
        """There is no more audio to come.

        Raises:
            RuntimeError: if the session failed.
        """
        self._stream.check()
        if not self._stream.ended:
            with self._stream.changing():
                self._stream.end()


class Batcher:
    """Sessions that share the steps of a recogniser's network; for one thread.

        session = batcher.start()
        session.accept(samples)
        while batcher.step():
            pass
        print(session.result)

    Args:
        recognizer: with chunks, on any backend.
        max_rows: streams in one step at most.

    Raises:
        UserError: in full context, where a stream has no steps; for a number of rows that is none.
    """

    def __init__(self, recognizer: Recognizer, max_rows: int = 32) -> None:
        if recognizer.chunk_size == FULL_CONTEXT:
            raise UserError("in full context streams have no steps to share: choose a chunk_size")
        rows = whole_number(max_rows, 1)
        if rows is None:
            raise UserError(f"max_rows must be 1 or more, a whole number, got {shown(max_rows)}")
        self.recognizer, self.max_rows = recognizer, rows
        self._streams: list[Stream] = []  # that go on, the one that waited longest first
        # Of streams that made their last step together: their states, views of one in one piece.
        self._together: dict[tuple[Stream, ...], EncoderState] = {}
        self._live = False  # whether the last step was one of chunks

    def start(
        self, sample_rate: int = audio.SAMPLE_RATE, hotwords: Phrases | None = None
    ) -> BatchedSession:
        """A new stream of samples at this rate, with hotwords of its own."""
        stream = self.recognizer.stream(sample_rate, hotwords)
        self._streams.append(stream)
        return BatchedSession(stream)

    def drop(self, session: BatchedSession) -> None:
        """End a session whose result nobody waits for any more, and forget it."""
        session._stream.give_up()
        self._leave()

    def step(self) -> int:
        """One step of the network, of how many streams; 0 if there is nothing to do.

        Of a chunk of each stream that has one, or of what waits for the second pass. Where both
        wait they take turns, so that a live result comes at most one step of the second pass later.

        An exception that a stream's search or postprocess raises is that session's `error`: it goes
        no further, and the others do. One of the network is raised, and all is as it was before.
        """
        self._leave()
        live = [stream for stream in self._streams if stream.due][: self.max_rows]
        ended = [stream for stream in self._streams if stream.ended_feats]
        self._live = bool(live) and not (ended and self._live)
        if self._live:
            self._step_live(live)
            return len(live)
        return self._step_ended(ended) if ended else 0

    def _step_live(self, rows: list[Stream]) -> None:
        """A chunk of each of these streams."""
        engine = self.recognizer.engine
        chunks = [row.feats(min(row.due, engine.spec.chunk_frames)) for row in rows]
        output = engine.step_of(chunks, self._joined(rows))
        self._unshare(rows, moving=rows)  # not before: a step that fails leaves all as it was
        rows_of_fields = (field.split(1) for field in output.state)
        states = [EncoderState(*each) for each in zip(*rows_of_fields, strict=True)]
        for i, (row, count) in enumerate(zip(rows, output.lengths.tolist(), strict=True)):
            with suppress(Exception), row.changing():
                row.give(output.log_probs[i, :count], states[i], len(chunks[i]))
        self._go_behind(rows)
        self._together[tuple(rows)] = output.state
        if any(row.state is not own for row, own in zip(rows, states, strict=True)):
            self._unshare(rows)

    def _step_ended(self, waiting: list[Stream]) -> int:
        """The second pass of a piece of each of these streams, as many as a step may take."""
        engine = self.recognizer.engine
        second = waiting[0].second
        assert second is not None
        most = MOST_ENDED_MS // engine.spec.frame_ms * engine.spec.factor  # feature frames
        rows, longest = waiting[:1], len(waiting[0].ended_feats[0])
        for stream in waiting[1 : self.max_rows]:
            longest = max(longest, len(stream.ended_feats[0]))
            if longest * (len(rows) + 1) > most:
                break
            rows.append(stream)
        pieces = [row.ended_feats[0] for row in rows]
        output = second.step_of(pieces, second.init_state(len(rows)))
        for i, (row, count) in enumerate(zip(rows, output.lengths.tolist(), strict=True)):
            with suppress(Exception), row.changing():
                row.settle(output.log_probs[i, :count])
        self._go_behind(rows)
        return len(rows)

    def _go_behind(self, rows: list[Stream]) -> None:
        """These streams wait behind those that have not had their turn."""
        self._streams = [stream for stream in self._streams if stream not in rows] + rows

    def _leave(self) -> None:
        """Streams that are over are forgotten."""
        self._unshare([stream for stream in self._streams if stream.over])
        self._streams = [stream for stream in self._streams if not stream.over]

    def _joined(self, rows: list[Stream]) -> EncoderState:
        """The states of some rows, as those of a batch."""
        together = self._together.get(tuple(rows))
        if together is not None:  # nobody came or left since their last step
            return together
        return EncoderState(*map(torch.cat, zip(*(row.state for row in rows), strict=True)))

    def _unshare(self, streams: list[Stream], moving: Sequence[Stream] = ()) -> None:
        """Streams that were in one step with one of these get states of their own.

        Views would keep the states of all in memory as long as the slowest. Those that are moving
        on get new ones anyway.
        """
        for rows in [rows for rows in self._together if not set(rows).isdisjoint(streams)]:
            del self._together[rows]
            for row in set(rows).difference(moving):
                row.state = EncoderState(*(each.clone() for each in row.state))
