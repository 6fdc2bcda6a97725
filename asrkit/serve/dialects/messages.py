"""The messages of asrkit's own protocol at /v1/stream, and their checks."""

from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from asrkit.errors import UserError
from asrkit.runtime import Word
from asrkit.serve.calls import MOST_CHANNELS
from asrkit.serve.dialects.parsing import Name, Rate, checked, problem

ENCODINGS: dict[str, np.dtype[Any]] = {"pcm_s16le": np.dtype("<i2"), "pcm_f32le": np.dtype("<f4")}
Count = Annotated[int, Field(ge=0)]
Phrase = Annotated[str, Field(min_length=1, max_length=200)]


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Start(Message):
    """The first message of a client: audio format and recognition options."""

    type: Literal["start"]
    sample_rate: Rate = 16_000
    """Sample rate of the audio in binary messages, Hz."""
    channels: Annotated[int, Field(ge=1, le=MOST_CHANNELS)] = 1
    """Number of interleaved channels. Each is recognised by itself and takes a stream."""
    encoding: Literal["pcm_s16le", "pcm_f32le"] = "pcm_s16le"
    """Format of the samples in binary messages."""
    hotwords: dict[Phrase, float] | list[Phrase] = []
    """Phrases to prefer, or phrases with weights, if the server's search can prefer phrases."""
    pause_ms: Annotated[int, Field(ge=0, le=60_000)] | None = None
    """Length of the pause that ends a segment; 0: pauses end no segment; default: the server's."""
    end_of_turn: Literal["off", "low", "medium", "high"] | None = None
    """Eagerness with which a segment also ends where the model expects the end of a turn, if the
    model has a label for it; default: the server's."""
    model: Name | None = None
    """Name of one of the server's models; default: the first one."""


class Resume(Message):
    """A first message that resumes a call whose connection was lost."""

    type: Literal["resume"]
    id: Name
    token: Name
    finals: Count | Annotated[list[Count], Field(max_length=MOST_CHANNELS)] = 0
    """Number of segments that the client has, or a number for each of several channels; the server
    sends later ones again."""
    ack: Count = 0
    """The last `ack` that the client received; the server rejects an older state of the call."""


class Commit(Message):
    """End the segment here."""

    type: Literal["commit"]


class End(Message):
    """Finish the call: the server sends the remaining results, then `ended`."""

    type: Literal["end"]


class Answer(Message):
    """A message of a server; clients ignore unknown fields."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class TimedWord(Answer):
    text: str
    start: float
    """Seconds from the start of the call."""
    end: float
    confidence: float
    spaced: bool = True
    """Whether a space precedes the word in the text; false in Chinese, Japanese, Thai, …"""


class Started(Answer):
    type: Literal["started"] = "started"
    model: str
    context: str
    """Context of the live text, and of the final text if it has another one."""
    id: Name
    """Id of the call; a `resume` needs id and token."""
    token: Name
    ack: int = 0
    """Samples that the server has; the client sends the samples that follow them."""
    commits: int = 0
    """Commits that the server has processed."""


class Text(Answer):
    type: str
    text: str
    words: list[TimedWord]
    ack: int
    """Samples that the client need not send again, even after a crash of the server."""
    recognized: int
    """Samples of the client that have been recognised."""
    channel: int | None = None
    """Number of the channel, from 0; left out if the call has one."""


class Partial(Text):
    """The text of the open segment, which may still change."""

    type: Literal["partial"] = "partial"
    stable: str
    """The beginning of the text that no longer changes."""


class Final(Text):
    """A segment that has ended; it no longer changes."""

    type: Literal["final"] = "final"
    start: float
    """Start of the first word, seconds from the start of the call."""
    end: float
    """End of the last word."""
    context: str


class Ended(Answer):
    """The last message of a call: all audio has been recognised."""

    type: Literal["ended"] = "ended"
    ack: int
    warning: str | None = None
    """Warning about audio that was not used; left out if all was used."""


class Error(Answer):
    """The reason why a call was rejected or ended."""

    type: Literal["error"] = "error"
    reason: str
    message: str


Request: TypeAlias = Start | Resume | Commit | End
Reply: TypeAlias = Started | Partial | Final | Ended | Error
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="type")])
_REPLY: TypeAdapter[Reply] = TypeAdapter(Annotated[Reply, Field(discriminator="type")])
_WORDS = TypeAdapter(list[TimedWord])


def parsed(text: str) -> Request:
    """Return a client's message.

    Raises:
        UserError: if `text` is not a message of a client.
    """
    return checked(_REQUEST.validate_json, text)


def answer(text: str | bytes) -> Reply | None:
    """Return a server's message; None for a message of an unknown type.

    Raises:
        UserError: if `text` is not a message.
    """
    try:
        return _REPLY.validate_json(text)
    except ValidationError as error:
        if error.errors()[0]["type"] == "union_tag_invalid":
            return None
        raise UserError(f"not a message of asrkit serve: {problem(error)}") from None


def timed(words: tuple[Word, ...]) -> list[TimedWord]:
    return _WORDS.validate_python(words, from_attributes=True)
