"""What a server is made of: the models, the workers that run them, its limits and its figures."""

import asyncio
import re
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from asrkit.audio.resampler import is_fast
from asrkit.errors import UserError, shown
from asrkit.runtime import Endpointer, Recognizer
from asrkit.search import is_fusing
from asrkit.serve import fair
from asrkit.serve.async_store import AsyncStore
from asrkit.serve.call_store import MOST_ENTRIES, SHORTEST_KEY, MemoryStore, Store
from asrkit.serve.calls import Call, SavedCall
from asrkit.serve.logs import log
from asrkit.serve.places import Network, Place, displaced, is_free
from asrkit.serve.resumption import Version
from asrkit.serve.worker import Worker

UNPREFERRED = "the search of the server takes none; asrkit serve --second-search prefix_beam does"
NAMED = 5  # phrases in a warning
OPENAI_MODEL = re.compile(r"whisper-1|gpt-[\w.-]+")


def phrases_of(prompt: str) -> list[str]:
    """The phrases of an OpenAI prompt, which commas separate."""
    return [each for each in map(str.strip, prompt.split(",")) if each]


class Limits(NamedTuple):
    """What one client may ask of a server."""

    streams: int = 100  # at the same time, of all clients
    ahead_s: float = 10.0  # seconds of a call's audio that wait for the network
    call_s: float = 4 * 3600.0  # longest call, and longest recording
    silence_s: float = 60.0  # without a message, before a call is ended
    connections: int | None = None  # None for what the system's descriptors allow
    idle_s: float = 2.0  # without any audio, after which a call leaves its place to another
    header_s: float = 10.0  # in which a request has to come, and the first message of a call
    resume_s: float = 60.0  # that a call waits for its client to come back
    save_s: float = 5.0  # from one time that a call is put into a store that survives to the next
    upload_mb: int = 200
    decoders: int = 8  # processes, each of which decodes an upload
    uploads_waiting: int = 32  # for a free process
    decode_mb: int = 1000  # memory of such a process
    decode_s: float = 120.0  # its processor time, and its longest time without a block of audio
    message_kb: int = 1024
    hotwords: int = 1000


class RefusedError(UserError):
    """A call that cannot be taken now.

    Attributes:
        status: of HTTP.
        reason: one word, for the figures.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class Figures:
    """Counters for Prometheus."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.streams = Gauge("asrkit_streams", "Calls that go on.", ["model"], registry=registry)
        self.audio = Counter(
            "asrkit_audio_seconds", "Seconds of audio taken by the network.", ["model"],
            registry=registry,
        )  # fmt: skip
        self.rows = Histogram(
            "asrkit_step_rows", "Streams in a step of the network.", ["model"], registry=registry,
            buckets=(1, 2, 4, 8, 16, 32),
        )  # fmt: skip
        self.seconds = Histogram(
            "asrkit_step_seconds", "Time of a step of the network.", ["model"], registry=registry,
            buckets=(0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64),
        )  # fmt: skip
        self.refused = Counter(
            "asrkit_refused", "Calls that were refused.", ["reason"], registry=registry
        )
        self.dropped = Counter(
            "asrkit_dropped", "Calls that the server ended.", ["reason"], registry=registry
        )

    def step(self, model: str, rows: int, seconds: float) -> None:
        """Note a step of a model's network."""
        self.rows.labels(model).observe(rows)
        self.seconds.labels(model).observe(seconds)


class Model(NamedTuple):
    """A recogniser by the name that clients ask for, and the workers that run it."""

    name: str
    recognizer: Recognizer
    workers: list[Worker]

    @property
    def takes_hotwords(self) -> bool:
        """Whether the search of the final text takes them."""
        return is_fusing(self.recognizer.final_search)

    @property
    def pause_ms(self) -> int | None:
        """Length of the pause that ends a segment; None if none does."""
        endpointer = self.recognizer.decoding.endpointer
        return None if endpointer is None else endpointer.pause_ms

    @property
    def ranks_texts(self) -> bool:
        """Whether the search of the final text finds several texts."""
        search = self.recognizer.final_search
        return bool(search.nbest(search.start()))

    def other_language(self, language: str) -> str:
        """A warning about a language that a client names and that is not the model's, or ""."""
        known = self.recognizer.languages
        if not language or language.lower().partition("-")[0] in known:
            return ""
        of = f"recognises {', '.join(known)}" if known else "does not state its languages"
        return f"language {shown(language, 40)} has no effect: the model {of}"


class Server:
    """Recognisers that take calls.

    Args:
        models: by the names that clients ask for; the first is for those that name none.
        limits: what a client may ask for.
        threads: workers of each model, each a thread that takes steps.
        token: that clients have to send; None for none.
        origins: of pages elsewhere that may connect.
        hosts: names by which clients may call a server without a token, beside localhost.
        store: where calls wait for their clients to come back; the process if None.
        key: with which what is in the store is authenticated; one of the process if None.
        proxies: addresses of proxies whose X-Forwarded-For names the client.
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
        key: bytes | None = None,
        proxies: Sequence[Network] = (),
    ) -> None:
        self.proxies = proxies
        self.limits = limits or Limits()
        self.token, self.origins, self.figures = token, origins, Figures()
        self.hosts = frozenset(name.lower() for name in hosts)
        self.store = AsyncStore(store or MemoryStore(self.limits.resume_s))
        if key is not None and len(key) < SHORTEST_KEY:
            raise UserError(f"a key has {SHORTEST_KEY} bytes or more, got {len(key)}")
        self.key = secrets.token_bytes(32) if key is None else key
        self.newest: dict[str, Version] = {}  # of calls that this process has put, by name
        self._keeps, self._keeps_at = 2.0 * self.limits.streams, time.monotonic()
        self.models = {
            name: Model(name, recognizer, [self._worker(name, recognizer) for _ in range(threads)])
            for name, recognizer in models.items()
        }
        self.calls: dict[Call, Place] = {}  # that go on
        self.lines: dict[str, Any] = {}  # of calls that outlive their connections, by name

    def _worker(self, name: str, recognizer: Recognizer) -> Worker:
        return Worker(recognizer, self.limits.ahead_s, partial(self.figures.step, name))

    def model(self, name: str | None = None) -> Model:
        """The model of this name; the first if None.

        Raises:
            UserError: if there is none.
        """
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise UserError(f"no model {shown(name)} here, but {', '.join(self.models)}")
        return self.models[name]

    def openai_model(self, name: str | None) -> tuple[Model, str]:
        """The model that a client of OpenAI's protocols names.

        Some of these clients always name a model of OpenAI's: the first model takes its place.

        Returns:
            The model, and a warning if it has another name, or "".

        Raises:
            UserError: if there is none.
        """
        if name is None or name in self.models or OPENAI_MODEL.fullmatch(name) is None:
            return self.model(name), ""
        model = self.model()
        return model, f"the model {shown(name, 60)} is not served: {model.name} is used"

    def close(self) -> None:
        """End all calls."""
        self.store.close()
        for model in self.models.values():
            for worker in model.workers:
                worker.close()

    def note_newest(self, name: str, version: Version) -> None:
        """Note which state of a call is the newest, so that an older one is told apart."""
        self.newest.pop(name, None)
        self.newest[name] = version
        while len(self.newest) > MOST_ENTRIES:
            del self.newest[next(iter(self.newest))]

    def may_keep(self) -> bool:
        """Whether the state of one more call that has just begun may be written: a few may be."""
        most, now = 2.0 * self.limits.streams, time.monotonic()
        rate = most / self.limits.save_s
        self._keeps = min(most, self._keeps + (now - self._keeps_at) * rate)
        self._keeps_at = now
        if self._keeps < 1.0:
            return False
        self._keeps -= 1.0
        return True

    def admits(self, token: str) -> bool:
        """Whether this is the token, if there is one."""
        return self.token is None or secrets.compare_digest(token.encode(), self.token.encode())

    async def recognizer_for(
        self,
        model: Model,
        hotwords: Mapping[str, float] | Sequence[str] = (),
        pause_ms: int | None = None,
    ) -> Recognizer:
        """A model's recogniser with hotwords and a pause of the caller's own.

        Args:
            model: one of the server's.
            hotwords: phrases to prefer, or phrases with weights.
            pause_ms: length of the pause that ends a segment. 0: no pause does. None: the
                server's. The other options of segments are always the server's.

        Raises:
            UserError: for values that cannot be.
        """
        recognizer = model.recognizer
        if pause_ms is not None:
            own = recognizer.decoding.endpointer or Endpointer()
            endpointer = own.with_pause(pause_ms or None)
            decoding = recognizer.decoding._replace(endpointer=endpointer)
            recognizer = recognizer.with_decoding(decoding)
        self.check_hotwords(hotwords)
        if hotwords:  # a thousand take 30 ms: not here, where all calls wait
            recognizer = await asyncio.to_thread(recognizer.with_hotwords, hotwords)
        return recognizer

    def check_hotwords(self, hotwords: Collection[str]) -> None:
        """Raises UserError for more hotwords than a call may have."""
        if len(hotwords) > self.limits.hotwords:
            raise UserError(f"{len(hotwords)} hotwords are more than {self.limits.hotwords}")

    async def preferred(self, model: Model, phrases: Sequence[str]) -> tuple[list[str], str]:
        """Select the phrases that a model can prefer, for protocols whose clients cannot know them.

        Returns:
            The phrases for `recognizer_for`, and a warning about those left out, or "".

        Raises:
            UserError: for more phrases than a call may have.
        """
        self.check_hotwords(phrases)
        if phrases and not model.takes_hotwords:
            return [], f"no phrases are preferred: {UNPREFERRED}"
        refused = await asyncio.to_thread(model.recognizer.refused_hotwords, phrases)
        kept = [each for each in phrases if each not in refused]
        named = [shown(each, 40) for each in list(refused)[:NAMED]]
        more = len(refused) - len(named)
        why = f"the model cannot write {', '.join(named)}{f' and {more} more' if more else ''}"
        return kept, f"{why}: left out of the preferred phrases" if refused else ""

    @property
    def streams(self) -> int:
        """How many calls go on."""
        return len(self.calls)

    def make_room(self) -> None:
        """Have a place free for one more call: that of a call without audio, where they run short.

        Raises:
            RefusedError: if there are as many calls with audio as there may be.
        """
        most, address = self.limits.streams, fair.address()
        if is_free(address, self.calls, most):
            return
        if found := displaced(address, self.calls, self.limits.idle_s):
            call, place = found
            idle = time.monotonic() - place.began
            text = f"no audio for {idle:.0f} s, and all {most} streams taken"
            call.fail(RefusedError(503, "streams", text))
            del self.calls[call]
            return
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
        """A call of a model, new or saved, which ends with the block.

        Args:
            model: one of the server's.
            sample_rate: of its samples, Hz.
            recognizer: on the model's backend; its own if None.
            saved: what it goes on with.
            patient: whether live calls come first, as before a recording.

        Raises:
            RefusedError: if there are as many as there may be.
            UserError: for a sample rate that is out of range, or costs neighbours too much.
        """
        if not is_fast(sample_rate):  # before anything is computed for it
            raise UserError(
                f"{sample_rate} Hz is no usual sample rate, as 8000, 44100 or 48000 are"
            )
        self.make_room()
        worker = min(model.workers, key=lambda each: len(each.calls))
        call = worker.start(sample_rate, recognizer, saved, patient)
        before, started = call.processed, time.monotonic()
        share = fair.CURRENT.get()
        if share is not None:
            share.working(True)
        self.calls[call] = Place(started, fair.address())
        self.figures.streams.labels(model.name).inc()
        try:
            yield call
        finally:
            call.cancel()
            self.calls.pop(call, None)
            if share is not None:
                share.working(False)
            self.figures.streams.labels(model.name).dec()
            done = max(0.0, call.processed - before)
            self.figures.audio.labels(model.name).inc(done)
            seconds = time.monotonic() - started
            log("call", model=model.name, audio_s=round(done, 3), seconds=round(seconds, 3))
