"""A server's models, the workers that run them, its limits and its metrics."""

import asyncio
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from asrkit.audio.resampler import checked_rate
from asrkit.errors import UserError, shown
from asrkit.runtime import Endpointer, Recognizer
from asrkit.serve.admission import CLIENT, is_free
from asrkit.serve.calls import Call, CallError, SavedCall
from asrkit.serve.logs import log
from asrkit.serve.metrics import Figures
from asrkit.serve.store import MEMORY, AsyncStore, SqliteStore, Store
from asrkit.serve.worker import Worker

UNPREFERRED = "the server's search cannot; start asrkit serve with --second-search prefix_beam"
NAMED = 5  # phrases in a warning


class Limits(NamedTuple):
    """Limits of a server and of each client; names ending in _s are seconds."""

    streams: int = 100  # concurrent calls of all clients
    ahead_s: float = 10.0  # audio of a call that may wait for the network
    call_s: float = 4 * 3600.0  # longest call, and longest recording
    silence_s: float = 60.0  # time without a message after which a call is ended
    connections: int = 500  # beside those of calls
    header_s: float = 10.0  # time for the first message of a call
    resume_s: float = 60.0  # time that a call without a connection is kept
    save_s: float = 5.0  # time between two saves of a call in a store that survives the process
    upload_mb: int = 200
    decoders: int = 8  # processes that decode uploads
    uploads_waiting: int = 32  # uploads that wait for a free process
    decode_mb: int = 1000  # memory of a decoding process
    # Processor time of an upload, and longest time without a block of audio.
    decode_s: float = 120.0
    message_kb: int = 1024
    hotwords: int = 1000


class RefusedError(UserError):
    """The error of a call that the server rejects.

    Attributes:
        status: HTTP status.
        reason: one word, for the metrics.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


def refusal_of(error: UserError, reason: str) -> RefusedError:
    """Return the error to report for a call; this reason is that of mistakes in the request."""
    if isinstance(error, CallError) and isinstance(error.__cause__, UserError):
        error = error.__cause__
    return error if isinstance(error, RefusedError) else RefusedError(400, reason, str(error))


class Model(NamedTuple):
    """A recogniser with the name that clients ask for, and the workers that run it."""

    name: str
    recognizer: Recognizer
    workers: list[Worker]

    def code_of(self, language: str) -> str:
        """Return the model's code for a client's language, "de" for "de-CH"; "" without one."""
        code = language.lower().partition("-")[0]
        return code if code in self.recognizer.languages else ""

    def other_language(self, language: str) -> str:
        """Return a warning if a client asks for a language that the model lacks, or ""."""
        if not language or self.code_of(language):
            return ""
        known = self.recognizer.languages
        of = f"recognises {', '.join(known)}" if known else "does not state its languages"
        return f"language {shown(language, 40)} has no effect: the model {of}"


class Wish(NamedTuple):
    """A client's wish for a model and its options.

    Attributes:
        model: name that the client sends, or None.
        substituted: pattern of the names of another service's models. Some of its clients always
            name one: that counts as no name.
        language: language that the client sends, or "", see `Server.model`.
        hotwords: phrases to prefer, or phrases with weights.
        phrases: phrases to prefer; those that the model cannot write are left out with a warning.
        pause_ms: length of the pause that ends a segment. 0: pauses end no segment. None: the
            server's length. The other options of segments are always the server's.
        end_of_turn: eagerness, see `Endpointer`; "off": no label ends a segment. None: the
            server's.
    """

    model: str | None = None
    substituted: re.Pattern[str] | None = None
    language: str = ""
    hotwords: Mapping[str, float] | Sequence[str] = ()
    phrases: Sequence[str] = ()
    pause_ms: int | None = None
    end_of_turn: str | None = None


class Grant(NamedTuple):
    """The model and recogniser for a wish."""

    model: Model
    recognizer: Recognizer  # the model's, with the client's options
    warnings: list[str]  # a line for each part of the wish that has no effect


class Server:
    """Recognisers that serve calls.

    Args:
        models: recogniser for each name that clients ask for; the first one is the default.
        limits: limits of the server and of each client.
        threads: number of workers of each model, each a thread.
        token: token that clients have to send; None if they need none.
        origins: origins of other sites whose pages may connect; "*": all sites.
        hosts: host names, beside localhost, of a server without a token.
        store: store of calls without a connection; this process's memory if None.
        key: key that authenticates calls in a store that others can write; random if empty.
    """

    def __init__(
        self,
        models: Mapping[str, Recognizer],
        limits: Limits | None = None,
        threads: int = 1,
        token: str | None = None,
        origins: tuple[str, ...] = (),
        hosts: tuple[str, ...] = (),
        store: Store | None = None,
        key: bytes = b"",
    ) -> None:
        self.limits = limits or Limits()
        self.token, self.origins, self.figures = token, origins, Figures()
        self.hosts = frozenset(name.lower() for name in hosts)
        self.store = AsyncStore(store or SqliteStore(MEMORY, self.limits.resume_s))
        is_own = store is None or isinstance(store, SqliteStore)  # only this user can write it
        self.key = key or (b"" if is_own else secrets.token_bytes(32))
        self.models: dict[str, Model] = {}
        for name, recognizer in models.items():
            workers = [Worker(recognizer, self.limits.ahead_s) for _ in range(threads)]
            self.models[name] = Model(name, recognizer, workers)
            self.figures.streams.labels(name)  # 0 until the first call
        self.calls: dict[Call, str] = {}  # calls now, with their clients
        self.resumable: dict[str, Any] = {}  # those that can be resumed, by the call's name

    def model(self, name: str | None = None, language: str = "") -> Model:
        """Return the model of this name. Without a name, `language` selects.

        Args:
            name: name that the client sends, or None.
            language: language that the client sends, or "". The first model that states it is
                selected, or the first of all if none does.

        Raises:
            UserError: if the server has no model of this name.
        """
        if name is None:
            models = [*self.models.values()]
            return next((each for each in models if each.code_of(language)), models[0])
        if name not in self.models:
            known = ", ".join(self.models)
            raise UserError(f"model {shown(name)} is not served: choose from {known}")
        return self.models[name]

    def close(self) -> None:
        """End all calls."""
        for model in self.models.values():
            for worker in model.workers:
                worker.close()

    def admits(self, token: str) -> bool:
        """Whether a client with this token may connect."""
        return self.token is None or secrets.compare_digest(token.encode(), self.token.encode())

    async def grant(self, wish: Wish) -> Grant:
        """Return the model and the recogniser for a client's wish.

        Raises:
            UserError: for a model that is not served, and for options that it cannot have.
        """
        name, known = wish.model, wish.substituted
        is_substitute = bool(name and name not in self.models and known and known.fullmatch(name))
        model = self.model(None if is_substitute else name, wish.language)
        warnings = []
        if is_substitute:
            warnings.append(f"the model {shown(name, 60)} is not served: {model.name} is used")
        recognizer = model.recognizer
        if wish.pause_ms is not None or wish.end_of_turn is not None:
            recognizer = self._with_pause(recognizer, wish.pause_ms, wish.end_of_turn)
        most = self.limits.hotwords
        if (count := max(len(wish.hotwords), len(wish.phrases))) > most:
            raise UserError(f"a call may have at most {most} hotwords, got {count}")
        phrases, left_out = await self._preferred(model, wish.phrases)
        if wish.hotwords and not recognizer.final_search.takes_fusion:
            raise UserError(f"hotwords: {UNPREFERRED}")
        # A thousand take 30 ms, too long for the event loop.
        if hotwords := wish.hotwords or phrases:
            recognizer = await asyncio.to_thread(recognizer.with_hotwords, hotwords)
        warnings += filter(None, (left_out, model.other_language(wish.language)))
        return Grant(model, recognizer, warnings)

    def _with_pause(
        self, recognizer: Recognizer, pause_ms: int | None, end_of_turn: str | None
    ) -> Recognizer:
        own = recognizer.decoding.endpointer
        asked: dict[str, Any] = {} if own else {"pause_ms": None}
        if pause_ms is not None:
            asked["pause_ms"] = pause_ms or None
        if end_of_turn is not None:
            asked["end_of_turn"] = None if end_of_turn == "off" else end_of_turn
        endpointer = (own or Endpointer()).changed(**asked)
        return recognizer.with_decoding(recognizer.decoding._replace(endpointer=endpointer))

    async def _preferred(self, model: Model, phrases: Sequence[str]) -> tuple[list[str], str]:
        """Return the phrases that a model can prefer, and a warning about the others, or ""."""
        if not phrases:
            return [], ""
        if not model.recognizer.final_search.takes_fusion:
            return [], f"no phrases are preferred: {UNPREFERRED}"
        refused = await asyncio.to_thread(model.recognizer.refused_hotwords, phrases)
        kept = [each for each in phrases if each not in refused]
        named = [shown(each, 40) for each in list(refused)[:NAMED]]
        more = len(refused) - len(named)
        why = f"the model cannot write {', '.join(named)}{f' and {more} more' if more else ''}"
        return kept, f"{why}: left out of the preferred phrases" if refused else ""

    def note_dropped(self, raised: UserError) -> RefusedError:
        """Count a call that the server ends because of an error; return the error to report."""
        error = refusal_of(raised, "request")
        if error.reason != "streams":  # a rejected call, counted elsewhere
            self.figures.dropped.labels(error.reason).inc()
        return error

    def check_room(self) -> None:
        """Check that there is a place for one more call.

        Raises:
            RefusedError: if all places are taken.
        """
        most = self.limits.streams
        if not is_free(CLIENT.get(), self.calls.values(), most):
            self.figures.refused.labels("streams").inc()
            raise RefusedError(503, "streams", f"all {most} streams are taken")

    @contextmanager
    def call(
        self,
        model: Model,
        sample_rate: int,
        recognizer: Recognizer | None = None,
        saved: SavedCall | None = None,
        patient: bool = False,
    ) -> Iterator[Call]:
        """A context manager of a new or restored call, which ends the call.

        Args:
            model: one of the server's models.
            sample_rate: sample rate of the audio, Hz.
            recognizer: recogniser on the model's backend; the model's own if None.
            saved: call to restore, or None for a new one.
            patient: whether live calls have priority over this one, as over a recording.

        Raises:
            RefusedError: if all places are taken.
            UserError: for an unusual sample rate.
        """
        checked_rate(sample_rate)  # before anything is computed for it
        self.check_room()
        worker = min(model.workers, key=lambda each: len(each.calls))
        call = worker.start(sample_rate, recognizer, saved, patient)
        before, started = call.processed, time.monotonic()
        self.calls[call] = CLIENT.get()
        self.figures.streams.labels(model.name).inc()
        try:
            yield call
        finally:
            call.cancel()
            self.calls.pop(call, None)
            self.figures.streams.labels(model.name).dec()
            done = max(0.0, call.processed - before)
            self.figures.audio.labels(model.name).inc(done)
            seconds = time.monotonic() - started
            log("call", model=model.name, audio_s=round(done, 3), seconds=round(seconds, 3))
