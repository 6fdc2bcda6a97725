"""The messages of asrkit's own protocol at /v1/stream, as checked and as documented."""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from asrkit.audio import opus
from asrkit.errors import UserError, printable
from asrkit.runtime import Segment, Word

ENCODINGS: dict[str, np.dtype[Any]] = {"pcm_s16le": np.dtype("<i2"), "pcm_f32le": np.dtype("<f4")}
Name = Annotated[str, Field(max_length=100)]
Phrase = Annotated[str, Field(min_length=1, max_length=200)]


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Start(Message):
    """The first message of a client: what its audio is and how it is to be recognised."""

    type: Literal["start"]
    sample_rate: Annotated[int, Field(ge=1000, le=768_000)] = 16_000
    """Of the audio in binary messages, Hz, one channel; of Opus 48000, at which it is decoded."""
    encoding: Literal["pcm_s16le", "pcm_f32le", "opus"] = "pcm_s16le"
    """Of Opus, a message is a packet of RFC 6716, without Ogg or WebM around it."""
    hotwords: dict[Phrase, float] | list[Phrase] = []
    """Phrases to prefer, or phrases with weights; for a server whose search takes them."""
    pause_ms: Annotated[int, Field(ge=0, le=60_000)] | None = None
    """A pause that ends a segment; 0: no pause does; the server's own if left out."""
    model: Annotated[str, Field(max_length=200)] | None = None
    """Name of one of the server's models; its first if left out."""

    @model_validator(mode="after")
    def check_rate(self) -> "Start":
        if self.encoding == "opus" and self.sample_rate != opus.RATE:
            raise ValueError(f"sample_rate of opus has to be {opus.RATE}, at which it is decoded")
        return self


class Resume(Message):
    """In place of a start: go on with a call whose connection was lost."""

    type: Literal["resume"]
    id: Name
    token: Name
    finals: Annotated[int, Field(ge=0)] = 0
    """How many segments the client has: those after them are sent again."""
    ack: Annotated[int, Field(ge=0)] = 0
    """The last `ack` that the client has: an older state of the call is rejected."""


class Commit(Message):
    """End the segment here."""

    type: Literal["commit"]


class End(Message):
    """There is no more audio; everything that is left comes back, then `ended`."""

    type: Literal["end"]


class Answer(Message):
    """A message of a server; a client ignores fields that it does not know."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class TimedWord(Answer):
    text: str
    start: float
    """Seconds from the start of the call."""
    end: float
    confidence: float
    spaced: bool = True
    """Whether a space comes before it in the text; not so in Chinese, Japanese, Thai, …"""


class Started(Answer):
    type: Literal["started"] = "started"
    model: str
    context: str
    """Of the live text, and of the final text if it has another one."""
    id: Name
    """With the token, what a `resume` needs."""
    token: Name
    ack: int = 0
    """Samples that have come already: what follows them is to be sent."""
    commits: int = 0
    """Commits that have come already."""


class Partial(Answer):
    """The open segment as it is now; it may still change."""

    type: Literal["partial"] = "partial"
    text: str
    stable: str
    """The beginning of the text that does not change any more."""
    words: list[TimedWord]
    ack: int
    """Samples of the client that need not be sent again, whatever happens."""
    recognized: int
    """Samples of the client that have been recognised."""


class Final(Answer):
    """A segment that has ended; it does not change any more."""

    type: Literal["final"] = "final"
    text: str
    start: float
    end: float
    words: list[TimedWord]
    context: str
    ack: int
    recognized: int


class Ended(Answer):
    """Everything has been recognised."""

    type: Literal["ended"] = "ended"
    ack: int
    warning: str | None = None
    """What of the audio was not used; left out if there is nothing."""


class Error(Answer):
    """The call is over because of this."""

    type: Literal["error"] = "error"
    reason: str
    message: str


FromClient = Annotated[Start | Resume | Commit | End, Field(discriminator="type")]
FromServer = Annotated[Started | Partial | Final | Ended | Error, Field(discriminator="type")]
_FROM_CLIENT: TypeAdapter[Start | Resume | Commit | End] = TypeAdapter(FromClient)
_FROM_SERVER: TypeAdapter[Started | Partial | Final | Ended | Error] = TypeAdapter(FromServer)


def schema() -> dict[str, Any]:
    """JSON schema of what clients send, and of what they get."""
    return {
        "client": _FROM_CLIENT.json_schema(),
        "server": _FROM_SERVER.json_schema(mode="serialization"),
    }


def parsed(text: str) -> Start | Resume | Commit | End:
    """A client's message.

    Raises:
        UserError: for what is not one.
    """
    try:
        return _FROM_CLIENT.validate_json(text)
    except ValidationError as error:
        raise UserError(problem(error)) from None


def answer(text: str | bytes) -> Started | Partial | Final | Ended | Error | None:
    """A server's message; None for one of a type that is not known here.

    Raises:
        UserError: for what is no message.
    """
    try:
        return _FROM_SERVER.validate_json(text)
    except ValidationError as error:
        if error.errors()[0]["type"] == "union_tag_invalid":
            return None
        raise UserError(f"this is no message of asrkit serve: {problem(error)}") from None


def problem(error: ValidationError) -> str:
    """The first problem of a message, in one line."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"])) or "the message"
    return printable(f"{place}: {first['msg']}"[:200])


def timed(words: tuple[Word, ...]) -> list[TimedWord]:
    return [
        TimedWord(text=w.text, start=w.start, end=w.end, confidence=w.confidence, spaced=w.spaced)
        for w in words
    ]


def final(segment: Segment, ack: int, recognized: int) -> Final:
    return Final(
        text=segment.text, start=segment.start, end=segment.end, words=timed(segment.words),
        context=segment.context, ack=ack, recognized=recognized,
    )  # fmt: skip
