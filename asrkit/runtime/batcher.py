"""Many streams, each where it is, in one step of the network."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType

import numpy as np
import torch

from asrkit import audio
from asrkit.errors import UserError, shown, whole_number
from asrkit.model import FULL_CONTEXT, EncoderState
from asrkit.runtime.recognizer import Phrases, Recognizer
from asrkit.runtime.results import Result
from asrkit.runtime.stream import Stream
from asrkit.runtime.turns import Streams

# Of audio in a step of the second pass of several streams: live chunks wait for it. Of 50 streams
# one live result in a hundred came later than 120 ms with 30 s, and than 80 ms with 10 s.
MOST_ENDED_MS = 10_000
PATIENT_TURN = 5  # steps of which one is for patient sessions, where others wait
PATIENT_ROWS = 4  # in such a step: a live chunk waits for it


MOST_COMMITS = 100  # of a session that wait for steps: each begins a stream with a state of its own


class AheadError(UserError):
    """Audio that comes faster than the network takes it: the same call may succeed later."""


class BatchedSession:
    """A session among those of a batcher, whose steps take it on.

    Its results are those of a session of its own, and so are its exceptions: one that comes up in
    a step is the session's `error`, and the others go on.

    Args:
        streams: of the session.
        max_ahead: seconds of audio that may wait for steps.
        patient: whether it leaves most steps to others, as a recording does to live audio.
    """

    def __init__(self, streams: Streams, max_ahead: float, patient: bool = False) -> None:
        self._streams, self._max_ahead, self.patient = streams, max_ahead, patient

    @property
    def result(self) -> Result:
        """What is known so far; final after `end` and the steps that take what was left.

        Raises:
            RuntimeError: if the session failed, because of its `error`.
        """
        self._streams.check()
        return self._streams.result

    @property
    def error(self) -> BaseException | None:
        """What ended the session before its time, as an exception of its search or postprocess."""
        return self._streams.error

    @property
    def waiting(self) -> float:
        """Seconds of audio that could go through the network now."""
        return self._streams.seconds_due

    @property
    def commits(self) -> int:
        """How many commits have been followed, to the end of the segment."""
        return self._streams.commits

    @property
    def taken(self) -> float:
        """Seconds of audio that have gone through the network."""
        return self._streams.seconds_taken

    def accept(self, samples: np.ndarray) -> None:
        """Take any number of samples, also 0 or 1.

        Args:
            samples: float32 in [-1, 1] or int16, (n,) or (n, channels).

        Raises:
            AudioError: for samples that cannot be used; the session is as it was before.
            AheadError: if `max_ahead` seconds wait; likewise.
            RuntimeError: after `end`, after `Batcher.drop`, or if the session failed.
        """
        self._streams.check_open()
        samples = audio.mono(samples)
        if self.waiting >= self._max_ahead:
            raise AheadError(
                f"{self.waiting:.1f} s of audio wait for the network, and at most "
                f"{self._max_ahead:g} s may: take steps, or send it more slowly"
            )
        for piece in self._streams.pieces(samples):
            self._streams.put(piece)

    def commit(self) -> None:
        """As `Session.commit`; the steps that it needs come before those of later samples.

        Raises:
            AheadError: if too many commits wait for steps; the session is as it was before.
            RuntimeError: as `accept`.
        """
        self._streams.check_open()
        if self._streams.num_waiting > MOST_COMMITS:
            raise AheadError(f"{MOST_COMMITS} commits wait for the network: take steps")
        self._streams.commit()

    def end(self) -> None:
        """There is no more audio to come.

        Raises:
            RuntimeError: if the session failed.
        """
        self._streams.check()
        self._streams.end()

    def save(self, key: bytes | None = None) -> bytes:
        """As `Session.save`, also after `end`; what waits for a step is saved, too."""
        return self._streams.save(key)


class Batcher:
    """Sessions that share the steps of a recogniser's network; for one thread.

        session = batcher.start()
        session.accept(samples)
        while moved := batcher.step():
            for session in moved:
                print(session.result)

    Args:
        recognizer: with chunks, on any backend.
        max_rows: streams in one step at most.
        max_ahead: seconds of audio of a session that may wait for steps before `accept` refuses
            more; None for no limit.

    Raises:
        UserError: in full context, where a stream has no steps; for a number that is out of range.
    """

    def __init__(
        self, recognizer: Recognizer, max_rows: int = 32, max_ahead: float | None = None
    ) -> None:
        if recognizer.chunk_size == FULL_CONTEXT:
            raise UserError("in full context streams have no steps to share: choose a chunk_size")
        rows = whole_number(max_rows, 1)
        if rows is None:
            raise UserError(f"max_rows must be 1 or more, a whole number, got {shown(max_rows)}")
        if max_ahead is not None and not max_ahead > 0:
            raise UserError(f"max_ahead must be above 0 seconds, got {shown(max_ahead)}")
        self.recognizer, self.max_rows = recognizer, rows
        self.max_ahead = math.inf if max_ahead is None else max_ahead
        self._sessions: list[BatchedSession] = []  # that go on, the one that waited longest first
        # Of streams that made their last step together: their states, views of one in one piece.
        self._together: dict[tuple[Stream, ...], EncoderState] = {}
        self._live = False  # whether the last step was one of chunks
        self._passed = 0  # steps in which patient sessions waited for others
        self._closed = False

    def __enter__(self) -> "Batcher":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(
        self,
        sample_rate: int = audio.SAMPLE_RATE,
        hotwords: Phrases | None = None,
        recognizer: Recognizer | None = None,
        patient: bool = False,
    ) -> BatchedSession:
        """A new session of samples at this rate, with hotwords of its own.

        Args:
            sample_rate: Hz.
            hotwords: as `Recognizer.with_hotwords` takes them.
            recognizer: on the same backend, with a search, endpointer, postprocess or second pass
                of its own; the batcher's if None.
            patient: leave most steps to the sessions that are not, as a recording does to live
                audio.

        Raises:
            AudioError: for a sample rate out of range.
            UserError: for hotwords that cannot be used, or a recogniser on another backend.
            RuntimeError: after `close`.
        """
        streams = (recognizer or self.recognizer).streams(sample_rate, hotwords)
        return self._begin(streams, recognizer, patient)

    def _begin(
        self, streams: Streams, recognizer: Recognizer | None, patient: bool = False
    ) -> BatchedSession:
        if self._closed:
            raise RuntimeError("this batcher is closed; make another one")
        if recognizer is not None and recognizer.backend is not self.recognizer.backend:
            raise UserError("a session's recognizer has to be on the batcher's own backend")
        session = BatchedSession(streams, self.max_ahead, patient)
        self._sessions.append(session)
        return session

    def restore(
        self, data: bytes, key: bytes | None = None, recognizer: Recognizer | None = None
    ) -> BatchedSession:
        """A session that was saved, among those of this batcher; as `Recognizer.restore`.

        Args:
            data: of a session of a recogniser like the one below.
            key: with which it was saved.
            recognizer: as `start` takes it.
        """
        return self._begin((recognizer or self.recognizer).restored(data, key), recognizer)

    def drop(self, session: BatchedSession) -> None:
        """End a session whose result nobody waits for any more, and forget it."""
        session._streams.give_up()
        self._leave()

    def close(self) -> None:
        """Drop all sessions, and start no others."""
        for session in self._sessions:
            session._streams.give_up()
        self._leave()
        self._closed = True

    def step(self) -> list[BatchedSession]:
        """One step of the network; the sessions that it took on, none if there is nothing to do.

        Of a chunk of each session that has one, or of what waits for the second pass. Where both
        wait they take turns, so that a live result comes at most one step of the second pass later.

        An exception that a session's search or postprocess raises is that session's `error`: it
        goes no further, and the others do. One of the network is raised, and all is as it was
        before.
        """
        self._leave()
        streams = {session._streams.stream: session for session in self._sessions}
        ready = self._first([each for each in streams if each.due or each.ended_feats], streams)
        live = [stream for stream in ready if stream.due][: self.max_rows]
        ended = [stream for stream in ready if stream.ended_feats]
        self._live = bool(live) and not (ended and self._live)
        if not live and not ended:
            return []
        rows = self._step_live(live) if self._live else self._step_ended(ended)
        moved = [streams[row] for row in rows]
        # They wait behind those that have not had their turn.
        self._sessions = [each for each in self._sessions if each not in moved] + moved
        return moved

    def _first(
        self, ready: list[Stream], sessions: Mapping[Stream, BatchedSession]
    ) -> list[Stream]:
        """The ready streams that may be in the next step, the one that waits longest first.

        Patient sessions have a few rows in every `PATIENT_TURN`-th step, where others wait.
        """
        others = [each for each in ready if not sessions[each].patient]
        patient = [each for each in ready if sessions[each].patient]
        self._passed = self._passed + 1 if patient and others else 0
        if others and (not patient or self._passed < PATIENT_TURN):
            return others
        self._passed = 0
        is_alone = all(each.patient for each in sessions.values())
        return patient if is_alone else patient[:PATIENT_ROWS]

    def _step_live(self, rows: list[Stream]) -> list[Stream]:
        """A chunk of each of these streams."""
        engine = self.recognizer.engine
        chunks = [row.feats(min(row.due, engine.spec.step_frames)) for row in rows]
        output = engine.step_of(chunks, self._joined(rows))
        self._unshare(rows, moving=rows)  # not before: a step that fails leaves all as it was
        rows_of_fields = (field.split(1) for field in output.state)
        states = [EncoderState(*each) for each in zip(*rows_of_fields, strict=True)]
        for i, (row, count) in enumerate(zip(rows, output.lengths.tolist(), strict=True)):
            with suppress(Exception), row.changing():
                row.give(output.frames[i, :count], states[i], len(chunks[i]))
        self._together[tuple(rows)] = output.state
        if any(row.state is not own for row, own in zip(rows, states, strict=True)):
            self._unshare(rows)
        return rows

    def _step_ended(self, waiting: list[Stream]) -> list[Stream]:
        """The second pass of a piece of each of these streams, as many as a step may take."""
        engine = self.recognizer.engine
        second = waiting[0].second
        assert second is not None
        alike = [row for row in waiting if row.second and row.second.backend is second.backend]
        rate = engine.spec.rate
        most = MOST_ENDED_MS // rate.frame_ms * rate.factor  # feature frames
        rows, longest = alike[:1], len(alike[0].ended_feats[0])
        for stream in alike[1 : self.max_rows]:
            longest = max(longest, len(stream.ended_feats[0]))
            if longest * (len(rows) + 1) > most:
                break
            rows.append(stream)
        pieces = [row.ended_feats[0] for row in rows]
        output = second.step_of(pieces, second.init_state(len(rows)))
        for i, (row, count) in enumerate(zip(rows, output.lengths.tolist(), strict=True)):
            with suppress(Exception), row.changing():
                row.settle(output.frames[i, :count])
        return rows

    def _leave(self) -> None:
        """Sessions that are over are forgotten."""
        self._unshare([row for rows in self._together for row in rows if row.over])
        self._sessions = [each for each in self._sessions if not each._streams.over]

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
