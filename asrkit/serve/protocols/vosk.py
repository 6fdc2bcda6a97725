"""Vosk's protocol, /vosk: 16-bit samples in, a JSON reply to each message except a config."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.websockets import WebSocket

from asrkit.errors import UserError, shown
from asrkit.runtime import Segment
from asrkit.serve.calls import Call, CallUpdate
from asrkit.serve.protocols.messages import ENCODINGS
from asrkit.serve.protocols.parsing import checked, object_of
from asrkit.serve.protocols.samples import append_samples, cut_off, samples_of
from asrkit.serve.protocols.websockets import next_message, send_text, telling
from asrkit.serve.server import Server

FIXED = ("model", "sample_rate", "phrase_list")  # settings that a call with audio cannot change
MOST_WARNINGS = 5  # in one reply
ONE_OF = "audio, or an object with one of config, eof and reset"


class VoskConfig(BaseModel):
    """A client's settings. `model` is the name of a model; in Vosk's own server it is a path."""

    model: str | None = None
    sample_rate: Annotated[int, Field(ge=1000, le=768_000)] = 8000
    words: bool = True
    phrase_list: list[str] = []
    max_alternatives: Annotated[int, Field(ge=0, le=100)] = 0


def error(reason: str, message: str) -> str:
    return json.dumps({"error": message, "reason": reason})


async def vosk(websocket: WebSocket, server: Server) -> None:
    """Serve the calls of a client one after another; a reset begins the next call."""
    async with telling(websocket, server, error):
        client = Client(websocket, server)
        while await client.call():
            pass


class Client:
    """A connection with its settings.

    Args:
        websocket: connection to the client.
        server: server of the calls.
    """

    def __init__(self, websocket: WebSocket, server: Server) -> None:
        self.websocket, self.server, self.config = websocket, server, VoskConfig()
        self.warnings: list[str] = []  # for the next reply
        self.is_new = True  # whether the client has sent no message yet

    async def call(self) -> bool:
        """Serve a call, and return whether a reset ended it, so that another one may follow."""
        message = await self.message()
        config, server = self.config, self.server
        model = server.model(config.model)
        phrases, left_out = await server.preferred(model, config.phrase_list)
        self.warn(left_out)
        if config.max_alternatives > 1 and not model.ranks_texts:
            self.warn("config.max_alternatives has no effect: the server's search has one result")
        recognizer = await server.recognizer_for(model, phrases)
        with server.call(model, config.sample_rate, recognizer) as call:
            return await self.converse(call, message)

    async def converse(self, call: Call, message: str | bytes) -> bool:
        """Answer the messages of a call, from its first message on."""
        past, text, rate = b"", "", self.config.sample_rate
        waiting: list[Segment] = []
        while isinstance(message, bytes):
            samples, past = samples_of(past, message, ENCODINGS["pcm_s16le"])
            await append_samples(call, self.server, samples, rate)
            update = call.waiting_update() or CallUpdate()
            waiting += update.segments
            text = update.text if update.seconds else text
            if waiting:
                await self.reply(result_of([waiting.pop(0)], self.config))
            else:
                await self.reply({"partial": text})
            message = await self.message(call)
        self.warn(cut_off(past))
        call.finish()
        waiting += await call.segments()
        await self.reply(result_of(waiting, self.config))
        return request_of(message) == "reset"

    async def message(self, call: Call | None = None) -> str | bytes:
        """Receive messages up to one that needs a reply: audio, eof or reset.

        Raises:
            UserError: for another message, and for settings that a call with audio cannot change.
        """
        while True:
            message = await next_message(self.websocket, self.server, self.is_new)
            self.is_new = False
            if isinstance(message, bytes) or (kind := request_of(message)) != "config":
                return message
            config = self.changed(object_of(message, ONE_OF)["config"])
            self.server.model(config.model)  # raises for a model that is not served
            for name in FIXED if call is not None else ():
                if getattr(config, name) != getattr(self.config, name):
                    raise UserError(
                        f"{kind}.{name}: the call has audio already; send a reset first"
                    )
            self.config = config

    def changed(self, asked: object) -> VoskConfig:
        """Return the settings with a client's changes.

        Raises:
            UserError: for an invalid value.
        """
        if not isinstance(asked, dict):
            raise UserError(f"config: expected an object, got {shown(asked)}")
        if unknown := sorted(asked.keys() - VoskConfig.model_fields.keys()):
            self.warn(
                f"config has no effect here: {', '.join(shown(each) for each in unknown[:5])}"
            )
        return checked(VoskConfig.model_validate, self.config.model_dump() | asked, "config.")

    def warn(self, text: str) -> None:
        """Add a warning to the next reply."""
        if text and text not in self.warnings and len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(text)

    async def reply(self, value: dict[str, Any]) -> None:
        if self.warnings:
            value, self.warnings = value | {"warning": "; ".join(self.warnings)}, []
        await send_text(self.websocket, json.dumps(value))


def request_of(text: str) -> str:
    """Return the kind of a text message: config, eof or reset.

    Raises:
        UserError: for a message that does not have exactly one of these keys.
    """
    value = object_of(text, ONE_OF)
    if len(value) != 1 or (kind := next(iter(value))) not in ("config", "eof", "reset"):
        raise UserError(f"expected {ONE_OF}, got {shown(text)}")
    if kind != "config" and not value[kind]:
        raise UserError(f"expected {ONE_OF}, got {shown(text)}")
    return kind


def result_of(segments: list[Segment], config: VoskConfig) -> dict[str, Any]:
    """Return segments as one result in Vosk's form."""
    text = " ".join(segment.text for segment in segments)
    if config.max_alternatives:
        ranked = segments[0].nbest if len(segments) == 1 else ()
        texts = [(each.text, each.score) for each in ranked] or [(text, 0.0)]
        rows = texts[: config.max_alternatives]
        return {"alternatives": [{"text": text, "confidence": score} for text, score in rows]}
    if not config.words:
        return {"text": text}
    words = [
        {"conf": word.confidence, "end": word.end, "start": word.start, "word": word.text}
        for segment in segments
        for word in segment.words
    ]
    return {"result": words, "text": text} if words else {"text": text}
