"""Twilio's media streams, /twilio: JSON messages with µ-law audio in base64, each track a call.

Twilio sends connected, start, media and stop. The texts come back on the same connection, as
messages with the event "transcript", for programs that pass a stream on.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from asrkit.errors import UserError, shown
from asrkit.runtime import Word
from asrkit.serve.calls import CallUpdate
from asrkit.serve.converse import Append, Begin, Dialect, Finish
from asrkit.serve.dialects.audio import MU_LAW
from asrkit.serve.dialects.messages import timed
from asrkit.serve.dialects.parsing import Name, bytes_of, checked, object_of, phrases_of
from asrkit.serve.server import Grant, Wish

RATE = 8000
EXPECTED = "a message of a media stream"
Track = Literal["inbound", "outbound"]


class MediaFormat(BaseModel):
    encoding: Literal["audio/x-mulaw"]
    sample_rate: Annotated[Literal[8000], Field(alias="sampleRate")]
    channels: Literal[1]


class Parameters(BaseModel):
    """The parameters that have an effect; others belong to the application."""

    token: Name = ""
    model: Name | None = None
    hotwords: Annotated[str, Field(max_length=10_000)] = ""
    pause_ms: Annotated[int, Field(ge=0, le=60_000)] | None = None


class Start(BaseModel):
    sid: Annotated[Name, Field(alias="streamSid")]
    tracks: Annotated[list[Track], Field(min_length=1, max_length=2)]
    media_format: Annotated[MediaFormat, Field(alias="mediaFormat")]
    parameters: Annotated[Parameters, Field(alias="customParameters")] = Parameters()


class Media(BaseModel):
    track: Track = "inbound"
    payload: str


class Twilio(Dialect):
    """A media stream with a call for each track.

    Args:
        token: token of the request, for a stream without the parameter.
    """

    def __init__(self, token: str) -> None:
        self.token, self.sid = token, ""
        self.tracks: list[Track] = []  # none before the start
        self.shown = ["", ""]  # last text of each track's open segment

    def read(self, message: str | bytes) -> Iterator[Any]:
        """Return the items of a message; events such as mark and dtmf have no effect."""
        event = object_of(message, EXPECTED)
        if not isinstance(kind := event.get("event"), str):
            raise UserError(f"expected {EXPECTED}: the field event is missing")
        if not self.tracks and kind not in ("connected", "start"):
            raise UserError(f"the stream must begin with the event start, got {shown(kind)}")
        if kind == "start":
            if self.tracks:
                raise UserError("the stream has started already")
            start = checked(Start.model_validate, event.get("start"), "start.")
            self.sid, self.tracks = start.sid, [*dict.fromkeys(start.tracks)]
            asked = start.parameters
            phrases = phrases_of(asked.hotwords)
            wish = Wish(asked.model, phrases=phrases, pause_ms=asked.pause_ms)
            yield Begin(wish, RATE, len(self.tracks), token=asked.token or self.token)
        if kind == "media":
            media = checked(Media.model_validate, event.get("media"), "media.")
            if media.track not in self.tracks:
                raise UserError(f"media.track: the start does not name {media.track}")
            codes = np.frombuffer(bytes_of(media.payload, "media.payload"), np.uint8)
            yield Append(MU_LAW[codes], self.tracks.index(media.track))
        if kind == "stop":
            yield Finish()

    def begun(self, begin: Begin, grant: Grant) -> Iterator[dict[str, Any]]:
        for warning in grant.warnings:
            yield self.message("warning", message=warning)

    def write(self, channel: int, update: CallUpdate) -> Iterator[dict[str, Any]]:
        for segment in update.segments:
            if segment.text:
                yield self.transcript(channel, segment.text, segment.words, is_final=True)
            self.shown[channel] = ""
        if update.text != self.shown[channel]:
            self.shown[channel] = update.text
            yield self.transcript(channel, update.text, update.words, is_final=False)

    def transcript(
        self, channel: int, text: str, words: tuple[Word, ...], is_final: bool
    ) -> dict[str, Any]:
        return self.message(
            "transcript", track=self.tracks[channel], is_final=is_final, text=text,
            words=[each.model_dump() for each in timed(words)],
        )  # fmt: skip

    def ended(self) -> Iterator[dict[str, Any]]:
        yield self.message("ended")

    def message(self, event: str, **fields: object) -> dict[str, Any]:
        return {"event": event, "streamSid": self.sid, **fields}

    def error(self, reason: str, text: str) -> dict[str, Any]:
        return {"event": "error", "reason": reason, "message": text}
