"""Many streams, each at any place in its audio, in one step of the network."""

from collections.abc import Callable, Sequence

from asrkit import audio
from asrkit.backends import Backend
from asrkit.context import FULL_CONTEXT
from asrkit.errors import UserError, checked_whole
from asrkit.runtime.recognizer import Phrases, Recognizer
from asrkit.runtime.results import Result
from asrkit.runtime.session import Session
from asrkit.runtime.stream import Steps, Stream

# Longest audio in a step of the second pass for several streams: live chunks wait for the step.
# With 50 streams the 99th percentile of live delay was 120 ms with 30 s, and 80 ms with 10 s.
MOST_ENDED_MS = 10_000
PATIENT_TURN = 5  # every fifth step has patient sessions while others wait
PATIENT_ROWS = 4  # patient sessions in such a step: live chunks wait for them
MOST_COMMITS = 100  # waiting commits of a session: each starts a stream with its own state


class BatchedSession(Session):
    """A session of a batcher, whose steps advance it.

    Results and exceptions are those of a `Session`. An exception of a step becomes the session's
    `error`, and the other sessions continue.

    Attributes:
        patient: whether the session yields most steps to others, as a recording does to live audio.
        note: notes in the batcher that the session has changed.
    """

    patient = False
    note: Callable[["BatchedSession"], None]

    @property
    def is_due(self) -> bool:
        """Whether a step would advance the session."""
        return bool(self.stream.due or self.stream.ended_feats)

    def commit(self) -> Result:
        """End a segment, see `Session.commit`; its steps precede those of later samples.

        Raises:
            UserError: if too many commits wait for steps; the session has not changed.
        """
        self._check_open()
        self._follow()
        if len(self._streams) > MOST_COMMITS:
            raise UserError(f"{MOST_COMMITS} commits wait for the network: call Batcher.step")
        return super().commit()

    def _step(self) -> None:
        """Note in the batcher that the session may be due."""
        self.note(self)


class Batcher:
    """Sessions that share the steps of a recogniser's network, for one thread.

        session = batcher.start()
        session.accept(samples)
        session.finish()
        while moved := batcher.step():
            for session in moved:
                print(session.result)

    Args:
        recognizer: recogniser with chunks, on any backend.
        max_rows: largest number of streams in one step.

    Raises:
        UserError: in full context, which has no steps to share; for a number out of range.
    """

    def __init__(self, recognizer: Recognizer, max_rows: int = 32) -> None:
        if recognizer.chunk_size == FULL_CONTEXT:
            raise UserError(
                "a batcher needs a chunk_size, got full context: streams share no steps"
            )
        self.recognizer, self.max_rows = recognizer, checked_whole("max_rows", max_rows)
        self._sessions: dict[BatchedSession, None] = {}  # those that are not over
        self._due: dict[BatchedSession, None] = {}  # of these, the longest waiting first
        self._steps = Steps()
        self._live = False  # whether the last step was of the first pass
        self._passed = 0  # number of steps that patient sessions have waited
        self._closed = False

    def start(
        self,
        sample_rate: int = audio.SAMPLE_RATE,
        hotwords: Phrases | None = None,
        recognizer: Recognizer | None = None,
        patient: bool = False,
    ) -> BatchedSession:
        """Start a session of samples at this rate, with its own hotwords.

        Args:
            sample_rate: Hz.
            hotwords: phrases, see `Recognizer.with_hotwords`.
            recognizer: recogniser on the same backend, with its own search, endpointer, postprocess
                or second pass; the batcher's if None.
            patient: whether to yield most steps to other sessions, as a recording does to live
                audio.

        Raises:
            AudioError: for a sample rate out of range.
            UserError: for hotwords that cannot be used, or a recogniser on another backend.
            RuntimeError: after `close`.
        """
        session = self._checked(recognizer).begin(BatchedSession, sample_rate, hotwords)
        session.patient = patient
        return self._add(session)

    def restore(self, data: bytes, recognizer: Recognizer | None = None) -> BatchedSession:
        """Restore a saved session in this batcher, see `Recognizer.restore`.

        Args:
            data: session saved by a recogniser with the same identity as `recognizer`.
            recognizer: recogniser of the session, see `start`.
        """
        return self._add(self._checked(recognizer).restored(BatchedSession, data))

    def cancel(self, session: BatchedSession) -> None:
        """End a session without a result and remove it."""
        session._cancel()
        self._note(session)

    def close(self) -> None:
        """Cancel all sessions; no new ones can start."""
        for session in [*self._sessions]:
            self.cancel(session)
        self._closed = True

    @property
    def is_due(self) -> bool:
        """Whether a step would advance a session."""
        return bool(self._due)

    def step(self) -> list[BatchedSession]:
        """Compute one step of the network and return the sessions that it advanced, if any.

        A step processes a chunk of each session that has one, or segments that wait for the second
        pass. If both wait, the passes alternate, so a live result is delayed by at most one step of
        the second pass.

        An exception of a session's search or postprocess ends this session, as its `error`. An
        exception of the network is raised, and no session has changed.
        """
        ready = self._first([*self._due])
        live = [session for session in ready if session.stream.due][: self.max_rows]
        ended = [session for session in ready if session.stream.ended_feats]
        self._live = bool(live) and not (ended and self._live)
        if not live and not ended:
            return []
        moved = live if self._live else self._together(ended)
        rows = [session.stream for session in moved]
        try:
            if self._live:
                most = self.recognizer.engine.spec.step_frames
                self._steps.first_pass(rows, [min(row.due, most) for row in rows])
            else:
                self._steps.second_pass(rows)
        finally:  # also after Ctrl-C: a session that is over would be due for ever
            for session in moved:  # they are queued behind those that still wait for a step
                del self._due[session]
                self._note(session)
        return moved

    def _first(self, ready: Sequence[BatchedSession]) -> Sequence[BatchedSession]:
        """Return the ready sessions for the next step, the longest waiting first.

        While others wait, patient sessions get a few rows of every `PATIENT_TURN`-th step.
        """
        others = [session for session in ready if not session.patient]
        patient = [session for session in ready if session.patient]
        self._passed = self._passed + 1 if patient and others else 0
        if others and (not patient or self._passed < PATIENT_TURN):
            return others
        self._passed = 0
        is_alone = all(session.patient for session in self._sessions)
        return patient if is_alone else patient[:PATIENT_ROWS]

    def _together(self, ended: Sequence[BatchedSession]) -> list[BatchedSession]:
        """Return the sessions whose second pass may share a step with the first session's."""
        rows: list[BatchedSession] = []
        longest, backend = 0, backend_of(ended[0].stream)
        alike = [session for session in ended if backend_of(session.stream) is backend]
        rate = self.recognizer.engine.spec.rate
        most = MOST_ENDED_MS // rate.frame_ms * rate.factor  # feature frames
        for session in alike[: self.max_rows]:
            longest = max(longest, len(session.stream.ended_feats[0]))
            if rows and longest * (len(rows) + 1) > most:
                break
            rows.append(session)
        return rows

    def _checked(self, recognizer: Recognizer | None) -> Recognizer:
        """Return the recogniser of a new session.

        Raises:
            UserError: for a recogniser on another backend.
            RuntimeError: after `close`.
        """
        if self._closed:
            raise RuntimeError("this batcher is closed; make another one")
        if recognizer is not None and recognizer.backend is not self.recognizer.backend:
            raise UserError("a session's recognizer must use the batcher's own backend")
        return recognizer or self.recognizer

    def _add(self, session: BatchedSession) -> BatchedSession:
        session.note = self._note
        self._sessions[session] = None
        self._note(session)
        return session

    def _note(self, session: BatchedSession) -> None:
        """Queue a session for the next step, or remove one that is over."""
        if session.over:
            self._steps.separate([session.stream])
            self._sessions.pop(session, None)
            self._due.pop(session, None)
        elif session.is_due and session in self._sessions:
            self._due.setdefault(session)


def backend_of(stream: Stream) -> Backend | None:
    """Return the backend of a stream's second pass."""
    return None if stream.second is None else stream.second.backend
