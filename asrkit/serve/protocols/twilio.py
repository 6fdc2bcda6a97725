"""Twilio's media streams, /twilio: JSON messages with µ-law audio in base64, each track a call.

Twilio sends connected, start, media and stop. The texts come back on the same connection, as
messages with the event "transcript", for programs that pass a stream on.
"""

import json
from contextlib import ExitStack
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field
from starlette.websockets import WebSocket

from asrkit.errors import UserError, shown
from asrkit.runtime import Word
from asrkit.serve.calls import Call
from asrkit.serve.protocols.g711 import MU_LAW
from asrkit.serve.protocols.messages import timed
from asrkit.serve.protocols.parsing import bytes_of, checked, object_of, phrases_of
from asrkit.serve.protocols.samples import append_samples
from asrkit.serve.protocols.websockets import all_ways, next_message, send, telling, token_of
from asrkit.serve.server import RefusedError, Server

RATE = 8000
EXPECTED = "a message of a media stream"
Track = Literal["inbound", "outbound"]
Name = Annotated[str, Field(max_length=200)]


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


def error(reason: str, message: str) -> str:
    return json.dumps({"event": "error", "reason": reason, "message": message})


async def twilio(websocket: WebSocket, server: Server) -> None:
    """Serve a connection: one media stream."""
    async with telling(websocket, server, error):
        start = await started(websocket, server)
        asked = start.parameters
        if not server.admits(asked.token or token_of(websocket.scope)):
            raise RefusedError(401, "token", "the parameter token is missing or wrong")
        model = server.model(asked.model)
        phrases, left_out = await server.preferred(model, phrases_of(asked.hotwords))
        recognizer = await server.recognizer_for(model, phrases, asked.pause_ms)
        with ExitStack() as stack:
            calls = {
                track: stack.enter_context(server.call(model, RATE, recognizer))
                for track in dict.fromkeys(start.tracks)
            }
            stream = Stream(websocket, server, start.sid, calls)
            if left_out:
                await stream.tell("warning", message=left_out)
            await stream.run()


async def started(websocket: WebSocket, server: Server) -> Start:
    """Receive the start of the stream; connected may come before it."""
    event = await next_event(websocket, server, first=True)
    if event["event"] == "connected":
        event = await next_event(websocket, server, first=True)
    if event["event"] != "start":
        raise UserError(f"the stream must begin with the event start, got {shown(event['event'])}")
    return checked(Start.model_validate, event.get("start"), "start.")


async def next_event(websocket: WebSocket, server: Server, first: bool = False) -> dict[str, Any]:
    """Receive a message, which has an event.

    Raises:
        UserError: for another message.
    """
    value = object_of(await next_message(websocket, server, first), EXPECTED)
    if not isinstance(value.get("event"), str):
        raise UserError(f"expected {EXPECTED}: the field event is missing")
    return value


class Stream:
    """A media stream with a call for each track.

    Args:
        websocket: connection to the client.
        server: server of the calls.
        sid: Twilio's id of the stream.
        calls: call of each track.
    """

    def __init__(
        self, websocket: WebSocket, server: Server, sid: str, calls: dict[Track, Call]
    ) -> None:
        self.websocket, self.server, self.sid, self.calls = websocket, server, sid, calls

    async def tell(self, event: str, **fields: object) -> None:
        await send(self.websocket, {"event": event, "streamSid": self.sid, **fields})

    async def run(self) -> None:
        """Serve the stream to its end."""
        writers = [self.write(track, call) for track, call in self.calls.items()]
        await all_ways(self.read(), writers, self.tell("ended"))

    async def read(self) -> None:
        """Receive audio until the stream stops; events such as mark and dtmf have no effect."""
        while (event := await next_event(self.websocket, self.server))["event"] != "stop":
            if event["event"] == "start":
                raise UserError("the stream has started already")
            if event["event"] == "media":
                media = checked(Media.model_validate, event.get("media"), "media.")
                if (call := self.calls.get(media.track)) is None:
                    raise UserError(f"media.track: the start does not name {media.track}")
                codes = np.frombuffer(bytes_of(media.payload, "media.payload"), np.uint8)
                await append_samples(call, self.server, MU_LAW[codes], RATE)
        for call in self.calls.values():
            call.finish()

    async def write(self, track: Track, call: Call) -> None:
        """Send the texts of a track until its call has ended."""
        told = ""
        while (update := await call.next_update()) is not None:
            for segment in update.segments:
                if segment.text:
                    await self.text(track, segment.text, segment.words, is_final=True)
                told = ""
            if update.text != told:
                told = update.text
                await self.text(track, update.text, update.words, is_final=False)

    async def text(self, track: Track, text: str, words: tuple[Word, ...], is_final: bool) -> None:
        await self.tell(
            "transcript", track=track, is_final=is_final, text=text,
            words=[each.model_dump() for each in timed(words)],
        )  # fmt: skip
