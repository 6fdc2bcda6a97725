"""Many streams, each where it is, in one step of the network."""

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from asrkit import audio
from asrkit.errors import UserError
from asrkit.model import FULL_CONTEXT, EncoderState
from asrkit.runtime.recognizer import Phrases, Recognizer
from asrkit.runtime.results import Result
from asrkit.runtime.session import Stream, pieces


class BatchedSession:
    """One stream among those of a batcher, whose steps take it on.

    Its results are those of a session of its own.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._ended = False

    @property
    def result(self) -> Result:
        """What is known so far; final after `end` and the steps that take what was left."""
        return self._stream.result

    @property
    def waiting(self) -> float:
        """Seconds of audio that could go through the network now."""
        return self._stream.due / 100

    def accept(self, samples: np.ndarray) -> None:
        """Take any number of samples, also 0 or 1.

        Args:
            samples: float32 in [-1, 1] or int16, (n,) or (n, channels).

        Raises:
            AudioError: for samples that cannot be used; the session is as it was before.
            RuntimeError: after `end`.
        """
        if self._ended:
            raise RuntimeError("this session has ended; start another one")
        for piece in pieces(self._stream, samples):
            self._stream.put(piece)

    def end(self) -> None:
        """There is no more audio to come."""
        if not self._ended:
            self._ended = True
            self._stream.put(np.zeros(0, dtype=np.float32), last=True)


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
        UserError: in full context, where a stream has no steps.
    """

    def __init__(self, recognizer: Recognizer, max_rows: int = 32) -> None:
        if recognizer.chunk_size == FULL_CONTEXT:
            raise UserError("in full context streams have no steps to share: choose a chunk_size")
        if max_rows < 1:
            raise UserError(f"max_rows must be 1 or more, got {max_rows}")
        self.recognizer, self.max_rows = recognizer, max_rows
        self._streams: list[Stream] = []  # that go on, the one that waited longest first
        # Of streams that made their last step together: their states, views of one in one piece.
        self._together: dict[tuple[Stream, ...], EncoderState] = {}

    def start(
        self, sample_rate: int = audio.SAMPLE_RATE, hotwords: Phrases | None = None
    ) -> BatchedSession:
        """A new stream of samples at this rate, with hotwords of its own."""
        stream = Stream(self.recognizer.with_hotwords(hotwords), sample_rate)
        self._streams.append(stream)
        return BatchedSession(stream)

    def drop(self, session: BatchedSession) -> None:
        """Forget a session whose result nobody waits for any more."""
        self._streams = [stream for stream in self._streams if stream is not session._stream]
        self._part([session._stream])

    def step(self) -> int:
        """One step with a chunk of each stream that has one; of how many streams.

        An exception that a stream's search or postprocess raises is raised here when all the others
        have their results; that stream goes no further.
        """
        self._part([stream for stream in self._streams if stream.result.is_final])
        self._streams = [stream for stream in self._streams if not stream.result.is_final]
        rows = [stream for stream in self._streams if stream.due][: self.max_rows]
        if not rows:
            return 0
        chunks = [row.feats(min(row.due, 4 * self.recognizer.chunk_size)) for row in rows]
        lengths = torch.tensor([len(chunk) for chunk in chunks], device=chunks[0].device)
        feats = pad_sequence(chunks, batch_first=True)
        output = self.recognizer.step(feats, lengths, self._joined(rows))
        self._part(rows, moving=rows)  # not before: a step that fails leaves all as it was
        rows_of_fields = (field.split(1) for field in output.state)
        states = [EncoderState(*each) for each in zip(*rows_of_fields, strict=True)]
        failures: list[Exception] = []
        for i, (row, count) in enumerate(zip(rows, output.lengths.tolist(), strict=True)):
            self._streams.remove(row)
            try:
                row.give(output.log_probs[i, :count], states[i], len(chunks[i]))
            except Exception as error:
                failures.append(error)
            else:
                self._streams.append(row)  # behind those that still wait
        self._together[tuple(rows)] = output.state
        if failures or any(row.state is not own for row, own in zip(rows, states, strict=True)):
            self._part(rows)
        if failures:
            raise failures[0]
        return len(rows)

    def _joined(self, rows: list[Stream]) -> EncoderState:
        """The states of some rows, as those of a batch."""
        together = self._together.get(tuple(rows))
        if together is not None:  # nobody came or left since their last step
            return together
        return EncoderState(*map(torch.cat, zip(*(row.state for row in rows), strict=True)))

    def _part(self, streams: list[Stream], moving: Sequence[Stream] = ()) -> None:
        """Those that were together with one of some streams get states of their own.

        Views would keep the states of all in memory as long as the slowest. Those that are moving
        on get new ones anyway.
        """
        for rows in [rows for rows in self._together if not set(rows).isdisjoint(streams)]:
            del self._together[rows]
            for row in set(rows).difference(moving):
                row.state = EncoderState(*(each.clone() for each in row.state))
