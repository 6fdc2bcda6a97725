"""OpenAI's realtime transcription, /v1/realtime?intent=transcription: events, audio in base64.

Each segment is an item. With `turn_detection`, segments end at pauses. Without it, they end where
the client commits. Clients append deltas, and replace them by the text of the event `completed`.
With one pass deltas are stable text, so that together they are this text. A second pass or a
postprocess has no stable text before the end of the segment. Then deltas are the live words, except
the last one, which may still grow.
"""

import json
import math
from contextlib import ExitStack
from itertools import count
from typing import Any

import numpy as np
from starlette.websockets import WebSocket

from asrkit.errors import UserError
from asrkit.runtime import Segment
from asrkit.runtime.endpoint import PAUSE_MS
from asrkit.runtime.words import joined
from asrkit.serve.calls import Call, CallUpdate
from asrkit.serve.protocols.g711 import A_LAW, MU_LAW
from asrkit.serve.protocols.openai_transcriptions import OPENAI_MODEL
from asrkit.serve.protocols.parsing import bytes_of, phrases_of
from asrkit.serve.protocols.realtime_messages import (
    AnyEvent,
    BufferAppend,
    BufferClear,
    BufferCommit,
    G711Format,
    RealtimeSession,
    SemanticVad,
    changed,
    error_event,
    event_of,
    first_session,
    id_of,
    loaded,
    no_effect,
    rate_of,
    unused,
)
from asrkit.serve.protocols.samples import append_samples, samples_of
from asrkit.serve.protocols.websockets import both_ways, next_message, send, telling
from asrkit.serve.server import RefusedError, Server

# Longest pause within a turn by the eagerness of `semantic_vad`, as OpenAI's.
LONGEST_MS = {"low": 8000, "medium": 4000, "high": 2000}
ITEM = "conversation.item.input_audio_transcription"


async def realtime(websocket: WebSocket, server: Server) -> None:
    """Serve a connection."""

    def error(reason: str, message: str) -> str:
        return json.dumps(error_event(reason, message))

    async with telling(websocket, server, error):
        if websocket.query_params.get("intent") != "transcription":
            raise UserError("only /v1/realtime?intent=transcription is served")
        with ExitStack() as stack:
            connection, name = (
                Connection(websocket, server, stack),
                websocket.query_params.get("model"),
            )
            await connection.start(first_session(server.model().pause_ms, name))
            await both_ways(connection.read(), connection.write())


class Connection:
    """A client's session and its current call.

    Args:
        websocket: connection to the client.
        server: server of the calls.
        stack: exit stack that ends the call with the connection.
    """

    def __init__(self, websocket: WebSocket, server: Server, stack: ExitStack) -> None:
        self.websocket, self.server, self.stack = websocket, server, stack
        self.numbers = count(1)
        self.session: RealtimeSession  # with its call and the call's item, from `begin`
        self.model: str | None  # name of the model that is used, if the client has sent one
        self.call: Call
        self.is_stable: bool  # whether the call has stable text before the end of a segment
        self.item: Item
        self.past, self.commits = b"", 0  # the call's last bytes, and its commits
        self.previous: str | None = None  # item that was completed last

    async def tell(self, kind: str, **fields: object) -> None:
        event = {"type": kind, "event_id": f"event_{next(self.numbers)}", **fields}
        await send(self.websocket, event)

    async def start(self, session: RealtimeSession) -> None:
        """Begin the first call of the connection."""
        warnings = await self.begin(session)
        await self.tell("session.created", session=self.shown())
        await self.warn(warnings)

    async def warn(self, warnings: list[str]) -> None:
        """Send warnings, except empty ones."""
        for warning in filter(None, warnings):
            await self.tell("warning", message=warning)

    async def begin(self, session: RealtimeSession) -> list[str]:
        """Begin a call with a session, and return warnings, some of which may be "".

        Raises:
            UserError: for an invalid session; the earlier session continues unchanged.
        """
        settings, server = session.audio.input, self.server
        asked = settings.transcription
        language = asked.language or ""
        model, instead = server.model_in_place(asked.model, OPENAI_MODEL, language)
        phrases, left_out = await server.preferred(model, phrases_of(asked.prompt))
        vad, pause_ms = settings.turn_detection, 0
        eagerness: str | None = "off"
        if isinstance(vad, SemanticVad):
            eagerness = "medium" if vad.eagerness == "auto" else vad.eagerness
            pause_ms = LONGEST_MS[eagerness]
        elif vad is not None:
            eagerness = None  # the server's
            pause_ms = vad.silence_duration_ms or model.pause_ms or PAUSE_MS
            vad.silence_duration_ms = pause_ms  # the client receives this session
        self.model = model.name if instead else asked.model
        recognizer = await server.recognizer_for(model, phrases, pause_ms, eagerness)
        self.stack.close()
        calling = server.call(model, rate_of(settings), recognizer)
        self.call = self.stack.enter_context(calling)
        decoding = recognizer.decoding
        self.is_stable = decoding.second is None and decoding.postprocess is None
        self.session, self.past, self.commits = session, b"", 0
        self.item = Item(f"item_{next(self.numbers)}")
        return [instead, left_out, model.other_language(language)]

    def shown(self) -> dict[str, Any]:
        """Return the session for the client, with the name of the model that is used."""
        value = self.session.model_dump()
        value["audio"]["input"]["transcription"]["model"] = self.model
        return value

    async def read(self) -> None:
        """Receive and handle the client's events; the answer to an invalid event is an error."""
        while True:
            message = await next_message(self.websocket, self.server)
            value: object = None
            try:
                value = loaded(message)
                await self.follow(event_of(value))
            except RefusedError:
                raise
            except UserError as error:
                event = error_event("invalid_request", str(error), id_of(value))
                await send(self.websocket, event)

    async def follow(self, event: AnyEvent) -> None:
        if isinstance(event, BufferAppend):
            await self.append(event.audio)
        elif isinstance(event, BufferCommit):
            if not self.call.seconds:
                raise UserError("input_audio_buffer.commit needs audio: append some first")
            self.call.commit()
        elif isinstance(event, BufferClear):
            await self.begin(self.session)
            await self.tell("input_audio_buffer.cleared")
        else:
            await self.update(event.session)

    async def update(self, asked: dict[str, Any]) -> None:
        """Change all fields of the session that a client names, or none after an error."""
        if self.call.seconds:
            raise UserError("the session has audio already: send input_audio_buffer.clear first")
        session = changed(self.session, asked)
        warnings = await self.begin(session)
        await self.tell("session.updated", session=self.shown())
        await self.warn([*warnings, no_effect(unused(asked, session, "session"))])

    async def append(self, text: str) -> None:
        data = bytes_of(text, "audio")
        settings = self.session.audio.input
        if isinstance(settings.format, G711Format):
            table = MU_LAW if settings.format.type == "audio/pcmu" else A_LAW
            samples = table[np.frombuffer(data, np.uint8)]
        else:
            samples, self.past = samples_of(self.past, data, np.dtype("<i2"))
        await append_samples(self.call, self.server, samples, rate_of(settings))

    async def write(self) -> None:
        """Send updates, item by item; after a clear, those of the next call."""
        while True:
            call = self.call
            while (update := await call.next_update()) is not None and call is self.call:
                await self.report(update)
            if call is self.call:
                return

    async def report(self, update: CallUpdate) -> None:
        """Send the events of an update."""
        vad = self.session.audio.input.turn_detection is not None
        for segment in update.segments:
            if vad:
                await self.started(segment.spoken)
                await self.complete([segment], segment.end)
            else:
                self.item.segments.append(segment)
        while self.commits < update.commits:
            self.commits += 1
            if not vad:
                await self.complete(self.item.segments, update.seconds)
        if update.words and vad:
            await self.started(update.words[0].start)
        if live := update.stable_text if self.is_stable else joined(update.words[:-1]):
            known = [segment.text for segment in self.item.segments]
            await self.delta(" ".join([*known, live]))

    async def started(self, seconds: float) -> None:
        """Send the event for an item's first words, once."""
        if not self.item.started:
            self.item.started = True
            await self.tell(
                "input_audio_buffer.speech_started",
                audio_start_ms=round(1000 * seconds), item_id=self.item.id,
            )  # fmt: skip

    async def delta(self, text: str) -> None:
        """Send the new part of an item's text, unless it changes what was sent."""
        new = text[len(self.item.sent) :]
        if new and text.startswith(self.item.sent):
            self.item.sent = text
            await self.tell(f"{ITEM}.delta", item_id=self.item.id, content_index=0, delta=new)

    async def complete(self, segments: list[Segment], end: float) -> None:
        """End the item with these segments, and begin the next item."""
        item, text = self.item, " ".join(segment.text for segment in segments)
        if item.started:
            await self.tell(
                "input_audio_buffer.speech_stopped",
                audio_end_ms=round(1000 * end), item_id=item.id,
            )  # fmt: skip
        await self.tell(
            "input_audio_buffer.committed", item_id=item.id, previous_item_id=self.previous
        )
        await self.delta(text)
        start = segments[0].start if segments else end
        usage = {"type": "duration", "seconds": math.ceil(end - start)}
        await self.tell(
            f"{ITEM}.completed", item_id=item.id, content_index=0, transcript=text, usage=usage
        )
        self.previous, self.item = item.id, Item(f"item_{next(self.numbers)}")


class Item:
    """The open item, and the text that was sent for it."""

    def __init__(self, id: str) -> None:
        self.id, self.started, self.sent = id, False, ""
        self.segments: list[Segment] = []
