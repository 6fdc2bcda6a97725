"""The events of /v1/realtime that a client sends, the session that they change, and checks."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from asrkit.serve.dialects.parsing import checked


class SessionPart(BaseModel):
    """A part of a session. OpenAI's sessions have more fields, which have no effect here."""

    model_config = ConfigDict(extra="ignore")


class PcmFormat(SessionPart):
    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[8000, 16000, 24000, 48000] = 24000


class G711Format(SessionPart):
    type: Literal["audio/pcmu", "audio/pcma"]
    rate: ClassVar = 8000


class ServerVad(SessionPart):
    type: Literal["server_vad"] = "server_vad"
    silence_duration_ms: Annotated[int, Field(ge=40, le=60_000)] | None = None  # the server's


class Transcription(SessionPart):
    model: str | None = None
    prompt: Annotated[str, Field(max_length=10_000)] = ""
    language: Annotated[str, Field(max_length=100)] | None = None


class Input(SessionPart):
    format: Annotated[PcmFormat | G711Format, Field(discriminator="type")] = PcmFormat()
    transcription: Transcription = Field(default_factory=Transcription)
    turn_detection: ServerVad | None = None


class Audio(SessionPart):
    input: Input = Field(default_factory=Input)


class RealtimeSession(SessionPart):
    type: Literal["transcription"] = "transcription"
    audio: Audio = Field(default_factory=Audio)


class Event(BaseModel):
    """An event of a client."""

    event_id: Any = None
    model_config = ConfigDict(extra="forbid")


class SessionUpdate(Event):
    type: Literal["session.update"]
    session: dict[str, Any]


class BufferAppend(Event):
    type: Literal["input_audio_buffer.append"]
    audio: str


class BufferCommit(Event):
    type: Literal["input_audio_buffer.commit"]


class BufferClear(Event):
    type: Literal["input_audio_buffer.clear"]


AnyEvent = SessionUpdate | BufferAppend | BufferCommit | BufferClear
EVENT: TypeAdapter[AnyEvent] = TypeAdapter(Annotated[AnyEvent, Field(discriminator="type")])


def changed(session: RealtimeSession, asked: dict[str, Any]) -> RealtimeSession:
    """Return a session with the changed fields.

    Raises:
        UserError: for an invalid value.
    """
    return checked(RealtimeSession.model_validate, merged(session.model_dump(), asked))


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Merge new fields into a session; a part with a `type` is replaced as a whole."""
    parts = {
        name: merged(old[name], value)
        for name, value in new.items()
        if isinstance(value, dict) and isinstance(old.get(name), dict) and "type" not in value
    }
    return old | new | parts


def unused(given: dict[str, Any], known: BaseModel, place: str) -> Iterator[str]:
    """Yield the places of fields that a client has set and that have no effect."""
    for name, value in given.items():
        part = getattr(known, name) if name in type(known).model_fields else None
        if isinstance(value, dict) and isinstance(part, BaseModel):
            yield from unused(value, part, f"{place}.{name}")
        elif name not in type(known).model_fields and value is not None:
            yield f"{place}.{name}"
