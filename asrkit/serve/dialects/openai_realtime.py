"""OpenAI's realtime transcription, /v1/realtime?intent=transcription: events, audio in base64.

Each segment is an item. With `turn_detection`, segments end at pauses. Without it, they end where
the client commits. Clients append deltas, and replace them by the text of the event `completed`.
Deltas are the live words, except the last one, which may still grow.
"""

import math
from collections.abc import Iterator
from itertools import count
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import QueryParams

from asrkit.errors import UserError
from asrkit.runtime import Endpointer, Segment
from asrkit.runtime.endpoint import PAUSE_MS
from asrkit.runtime.words import joined
from asrkit.serve.calls import CallUpdate
from asrkit.serve.converse import Append, Begin, Commit, Dialect
from asrkit.serve.dialects import parsing
from asrkit.serve.dialects.audio import A_LAW, MU_LAW, SampleReader
from asrkit.serve.dialects.openai_files import OPENAI_MODEL
from asrkit.serve.server import Grant, Wish

TABLES = {"audio/pcmu": MU_LAW, "audio/pcma": A_LAW}
ITEM, BUFFER = "conversation.item.input_audio_transcription", "input_audio_buffer"


# Parts of a session. OpenAI's sessions have more fields, which have no effect here.


class PcmFormat(BaseModel):
    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[8000, 16000, 24000, 48000] = 24000


class G711Format(BaseModel):
    type: Literal["audio/pcmu", "audio/pcma"]
    rate: ClassVar = 8000


class ServerVad(BaseModel):
    type: Literal["server_vad"] = "server_vad"
    silence_duration_ms: Annotated[int, Field(ge=40, le=60_000)] | None = None  # the server's


class Transcription(BaseModel):
    model: str | None = None
    prompt: Annotated[str, Field(max_length=10_000)] = ""
    keywords: list[Annotated[str, Field(max_length=1000)]] = []
    language: Annotated[str, Field(max_length=100)] | None = None


class Input(BaseModel):
    format: Annotated[PcmFormat | G711Format, Field(discriminator="type")] = PcmFormat()
    transcription: Transcription = Field(default_factory=Transcription)
    turn_detection: ServerVad | None = None


class Audio(BaseModel):
    input: Input = Field(default_factory=Input)


class RealtimeSession(BaseModel):
    type: Literal["transcription"] = "transcription"
    audio: Audio = Field(default_factory=Audio)


class Event(BaseModel):
    """An event of a client, with the fields of all types."""

    model_config = ConfigDict(extra="forbid")
    type: Literal[
        "session.update", "input_audio_buffer.append", "input_audio_buffer.commit",
        "input_audio_buffer.clear",
    ]  # fmt: skip
    event_id: Any = None
    audio: str = ""
    session: dict[str, Any] = {}


class Realtime(Dialect):
    """A client's session and its current call.

    Args:
        query: query of the request's address.
        endpointer: the server's; None if pauses end no segment.
    """

    session: RealtimeSession  # with its call, from `begun`
    reader: SampleReader

    def __init__(self, query: QueryParams, endpointer: Endpointer | None) -> None:
        self.query, self.numbers = query, count(1)
        self.pause_ms = endpointer and endpointer.pause_ms
        self.has_audio, self.commits = False, 0  # of the call
        self.previous: str | None = None  # item that was completed last
        self.item, self.item_started, self.sent = "", False, ""  # open item, and the text sent
        self.segments: list[Segment] = []  # of the open item

    def event(self, kind: str, **fields: object) -> dict[str, Any]:
        return {"type": kind, "event_id": f"event_{next(self.numbers)}", **fields}

    def open(self) -> Iterator[Begin]:
        if self.query.get("intent") != "transcription":
            raise UserError("only /v1/realtime?intent=transcription is served")
        session = RealtimeSession()
        session.audio.input.transcription.model = self.query.get("model")
        if self.pause_ms is not None:
            session.audio.input.turn_detection = ServerVad()
        yield self.begin("session.created", session)

    def begin(self, kind: str, session: RealtimeSession, warning: str = "") -> Begin:
        """Return the item that begins a call with a session, which is in force once it begins.

        Args:
            kind: type of the event that says so.
            session: session of the call.
            warning: text for another event, or "".
        """
        settings = session.audio.input
        asked, vad, pause_ms = settings.transcription, settings.turn_detection, 0
        if vad is not None:
            pause_ms = vad.silence_duration_ms or self.pause_ms or PAUSE_MS
            vad.silence_duration_ms = pause_ms  # the client receives this session
        wish = Wish(
            asked.model, OPENAI_MODEL, asked.language or "",
            phrases=parsing.phrases_of(asked.prompt, *asked.keywords), pause_ms=pause_ms,
            end_of_turn="off" if vad is None else None,
        )  # fmt: skip
        return Begin(wish, settings.format.rate, settings=(kind, session, warning))

    def begun(self, begin: Begin, grant: Grant) -> Iterator[dict[str, Any]]:
        kind, self.session, warning = begin.settings
        self.has_audio, self.commits = False, 0
        self.reader = SampleReader(table=TABLES.get(self.session.audio.input.format.type))
        self.next_item()
        if kind == f"{BUFFER}.cleared":
            yield self.event(kind)
            return
        shown = self.session.model_dump()
        shown["audio"]["input"]["transcription"]["model"] = grant.model.name  # the one in use
        yield self.event(kind, session=shown)
        for message in filter(None, [*grant.warnings, warning]):
            yield self.event("warning", message=message)

    def next_item(self) -> None:
        """Open another item."""
        self.item, self.item_started, self.sent = f"item_{next(self.numbers)}", False, ""
        self.segments = []

    def read(self, message: str | bytes) -> Iterator[Any]:
        value = parsing.object_of(message, "an event, which is a JSON object")
        event = parsing.checked(Event.model_validate, value)
        kind = event.type.rpartition(".")[2]
        if kind == "append":
            samples = self.reader.read(parsing.bytes_of(event.audio, "audio"))
            self.has_audio = self.has_audio or len(samples) > 0
            yield Append(samples)
        elif kind == "commit":
            if not self.has_audio:
                raise UserError("input_audio_buffer.commit needs audio: append some first")
            yield Commit()
        elif kind == "clear":
            yield self.begin(f"{BUFFER}.cleared", self.session)
        else:  # changes all fields of the session that a client names, or none after an error
            if self.has_audio:
                text = "the session has audio already: send input_audio_buffer.clear first"
                raise UserError(text)
            changed = merged(self.session.model_dump(), event.session)
            session = parsing.checked(RealtimeSession.model_validate, changed)
            warning = parsing.without_effect(parsing.unused(event.session, session, "session."))
            yield self.begin("session.updated", session, warning)

    def wrong(self, error: UserError) -> dict[str, Any]:
        return self.error("invalid_request", str(error))

    def error(self, reason: str, text: str) -> dict[str, Any]:
        about = {"type": "invalid_request_error", "code": reason, "message": text}
        return self.event("error", error={**about, "event_id": None, "param": None})

    def write(self, channel: int, update: CallUpdate) -> Iterator[dict[str, Any]]:
        vad = self.session.audio.input.turn_detection is not None
        for segment in update.segments:
            self.segments.append(segment)
            if vad:
                yield from self.started(segment.spoken)
                yield from self.complete(segment.end)
        for _ in range(0 if vad else update.commits - self.commits):
            yield from self.complete(update.seconds)
        self.commits = update.commits
        if update.words and vad:
            yield from self.started(update.words[0].start)
        if live := joined(update.words[:-1]):
            yield from self.delta(" ".join([*(each.text for each in self.segments), live]))

    def started(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Return the event for an item's first words, once."""
        if not self.item_started:
            self.item_started = True
            times = {"audio_start_ms": round(1000 * seconds)}
            yield self.event(f"{BUFFER}.speech_started", **times, item_id=self.item)

    def delta(self, text: str) -> Iterator[dict[str, Any]]:
        """Return the event for the new part of an item's text, unless it changes what was sent."""
        new = text[len(self.sent) :]
        if new and text.startswith(self.sent):
            self.sent = text
            yield self.event(f"{ITEM}.delta", item_id=self.item, content_index=0, delta=new)

    def complete(self, end: float) -> Iterator[dict[str, Any]]:
        """End the item with its segments, and begin the next item."""
        item, text = self.item, " ".join(segment.text for segment in self.segments)
        if self.item_started:
            times = {"audio_end_ms": round(1000 * end)}
            yield self.event(f"{BUFFER}.speech_stopped", **times, item_id=item)
        yield self.event(f"{BUFFER}.committed", item_id=item, previous_item_id=self.previous)
        yield from self.delta(text)
        start = self.segments[0].start if self.segments else end
        usage = {"type": "duration", "seconds": math.ceil(end - start)}
        about = {"item_id": item, "content_index": 0}
        yield self.event(f"{ITEM}.completed", **about, transcript=text, usage=usage)
        self.previous = item
        self.next_item()


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Merge new fields into a session; a part with a `type` is replaced as a whole."""
    parts = {
        name: merged(old[name], value)
        for name, value in new.items()
        if isinstance(value, dict) and isinstance(old.get(name), dict) and "type" not in value
    }
    return old | new | parts
