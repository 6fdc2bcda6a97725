"""Vosk's protocol, /vosk: 16-bit samples in, one JSON reply to every message."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError
from starlette.websockets import WebSocket

from asrkit.errors import UserError, printable
from asrkit.runtime import Segment
from asrkit.serve.calls import Call, News
from asrkit.serve.messages import ENCODINGS
from asrkit.serve.server import Server
from asrkit.serve.sockets import next_message, put, samples_of, telling


class Config(BaseModel):
    """What a client may set. Vosk's own server takes a model's path: here it is a model's name."""

    model: str | None = None
    sample_rate: Annotated[float, Field(ge=1000, le=768_000)] = 16_000
    words: bool = True
    phrase_list: list[str] = []
    max_alternatives: Annotated[int, Field(ge=0, le=100)] = 0
    model_config = {"extra": "forbid"}


def error(reason: str, message: str) -> str:
    return json.dumps({"error": message, "reason": reason})


async def vosk(websocket: WebSocket, server: Server) -> None:
    """Calls of one client, one after another: a reset begins another one."""
    config, model = Config(), server.model()
    async with telling(websocket, server, error):
        message = await next_message(websocket, server)
        while True:
            if isinstance(message, str) and "config" in (asked := object_of(message)):
                config = config_of(asked["config"])
                model = server.model(config.model)
                await websocket.send_text("{}")
                message = await next_message(websocket, server)
            recognizer = await server.recognizer_for(model, config.phrase_list)
            with server.call(model, round(config.sample_rate), recognizer) as call:
                if await converse(websocket, server, call, config, message):
                    return
            await websocket.send_text(json.dumps({"text": ""}))  # the reply to a reset
            message = await next_message(websocket, server)


async def converse(
    websocket: WebSocket, server: Server, call: Call, config: Config, message: str | bytes
) -> bool:
    """One call, beginning with a message; whether it ended rather than was reset."""
    past, shown = b"", ""
    waiting: list[Segment] = []
    while True:
        if isinstance(message, str):
            asked = object_of(message)
            if asked.get("reset"):
                return False
            if not asked.get("eof"):
                raise UserError("expected audio, config, eof or reset")
            call.end()
            waiting += await call.segments()
            await websocket.send_text(json.dumps(of(waiting, config)))
            return True
        samples, past = samples_of(past, message, ENCODINGS["pcm_s16le"])
        await put(call, server, samples, round(config.sample_rate))
        news = call.take() or News()
        waiting += news.segments
        shown = news.text if news.seconds else shown
        if waiting:
            await websocket.send_text(json.dumps(of([waiting.pop(0)], config)))
        else:
            await websocket.send_text(json.dumps({"partial": shown}))
        message = await next_message(websocket, server)


def object_of(text: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        UserError: for text that is none.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UserError("expected a JSON object or audio")
    return value


def config_of(value: object) -> Config:
    """Raises UserError for a setting that is not one, or has no such value."""
    try:
        return Config.model_validate(value)
    except ValidationError as failed:
        first = failed.errors(include_url=False, include_input=False)[0]
        text = f"config.{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UserError(printable(text[:200])) from None


def of(segments: list[Segment], config: Config) -> dict[str, Any]:
    """Segments as one result of Vosk's."""
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
