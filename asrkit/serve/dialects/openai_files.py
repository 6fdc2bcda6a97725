"""OpenAI's POST /v1/audio/transcriptions: the text of a file, at once or as a stream of events."""

import json
import math
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from asrkit.audio.samples import channel_name
from asrkit.errors import UserError, shown
from asrkit.registry import refusal
from asrkit.runtime import Segment, formats
from asrkit.serve.calls import Call
from asrkit.serve.dialects.files import (
    HEADERS,
    calls_of,
    rejection,
    saved,
    too_large,
    unless_left,
)
from asrkit.serve.dialects.parsing import phrases_of
from asrkit.serve.dialects.stable_text import StableText
from asrkit.serve.server import Grant, RefusedError, Server, Wish
from asrkit.serve.uploads import Decoders, Decoding

OPENAI_MODEL = re.compile(r"whisper-1|gpt-[\w.-]+")
FORMATS = ("json", "text", "srt", "vtt", "verbose_json", "diarized_json")
GRANULARITIES = ("segment", "word")
UNDETERMINED = "und"  # ISO 639's code of a language that nobody stated
SWITCH = {"true": True, "1": True, "false": False, "0": False}
NAMES, REFERENCES = "known_speaker_names[]", "known_speaker_references[]"  # names: of the channels
# Fields of OpenAI's and faster-whisper's servers that have no effect: asrkit does not sample texts.
IGNORED = ("temperature", "chunking_strategy", "include[]", REFERENCES, "vad_filter")
CHANNELS = ("mix", "split")
KNOWN = (
    "file", "model", "language", "prompt", "hotwords", "response_format", "stream",
    "timestamp_granularities[]", "channels", NAMES, *IGNORED,
)  # fmt: skip
WARNING = "X-Asrkit-Warning"  # header of a response
LONGEST_NAME = 100  # characters
FIELDS_BYTES = 1_000_000  # size of a form without its file


async def transcriptions(request: Request, decoders: Decoders) -> Response:
    """Answer a request."""
    server = decoders.server
    try:
        async with AsyncExitStack() as stack:
            async with bounded(request, server).form(max_files=1, max_fields=20) as form:
                asked = Asked(form)
                asked.grant = await granted(asked.wish, server)
                path = await saved(blocks_of(asked.file), server, stack)
            return await unless_left(request, answer(asked, path, decoders, stack))
    except (UserError, HTTPException, OSError) as error:
        return refused(rejection(error))


async def answer(asked: "Asked", path: Path, decoders: Decoders, stack: AsyncExitStack) -> Response:
    """Return the response for the file at `path`; `stack` ends the call and the decoding."""
    decoding, calls = await stack.enter_async_context(
        calls_of(path, asked.split, asked.grant, decoders)
    )
    names = asked.names or [*map(channel_name, range(decoding.channels))]
    if len(names) != decoding.channels:
        raise UserError(f"{NAMES}: {decoding.channels} channels, but {len(names)} names")
    if asked.stream:
        return asked.warned(Events(events(calls[0], decoding), stack.pop_all()))
    channels = [
        Channel(await call.segments(), {"channel": number, "speaker": name} if asked.split else {})
        for number, (call, name) in enumerate(zip(calls, names, strict=True))
    ]
    asked.warnings += decoding.warnings
    return asked.warned(asked.written(channels, decoding.seconds))


async def granted(wish: Wish, server: Server) -> Grant:
    """Return the model and recogniser for a wish; RefusedError for a model that is not served."""
    try:
        return await server.grant(wish)
    except UserError as error:
        if wish.model is not None and wish.model not in server.models:
            raise RefusedError(404, "model_not_found", str(error)) from None
        raise


class Channel(NamedTuple):
    """The segments of a channel, and the keys that tell its results from those of others."""

    segments: list[Segment]
    keys: dict[str, Any]

    def recording(self, seconds: float) -> formats.Recording:
        words = [word for segment in self.segments for word in segment.words]
        return formats.Recording(words, duration=seconds, **self.keys)


def bounded(request: Request, server: Server) -> Request:
    """Return the request with a limit on the size of its body, which must be a form.

    Raises:
        UserError: for another kind of body. Reading raises RefusedError if the body is too large.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise UserError(f"expected multipart/form-data with a file, got {shown(kind)}")
    left = server.limits.upload_mb * 1_000_000 + FIELDS_BYTES

    async def receive() -> Message:
        nonlocal left
        message = await request.receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise too_large(server)
        return message

    return Request(request.scope, receive)


async def blocks_of(file: UploadFile) -> AsyncIterator[bytes]:
    """Yield the bytes of an upload."""
    while data := await file.read(1 << 20):
        yield data


def refused(error: RefusedError) -> JSONResponse:
    """Return an error in OpenAI's form."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    body = {"message": str(error), "type": kind, "param": None, "code": error.reason}
    return JSONResponse({"error": body}, error.status, HEADERS.get(error.status))


class Asked:
    """The fields of a request.

    Raises:
        UserError: for a field that is unknown or missing, or has an invalid value.
    """

    grant: Grant

    def __init__(self, form: FormData) -> None:
        for name in form:
            if name not in KNOWN:
                raise UserError(f"the field {refusal(name, KNOWN)}")
            if len(form.getlist(name)) > 1 and not name.endswith("[]"):
                raise UserError(f"{name}: given more than once")
        texts = {name: value for name, value in form.items() if isinstance(value, str)}
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise UserError("file: expected an audio file")
        if others := form.keys() - texts.keys() - {"file"}:
            raise UserError(f"{shown(min(others))}: expected text, not a file")
        model, self.language = texts.get("model"), texts.get("language", "")
        self.file, self.form = file, texts.get("response_format", "json")
        stream, channels = texts.get("stream", "false").lower(), texts.get("channels", "mix")
        for name, value, known in (
            ("response_format", self.form, FORMATS), ("stream", stream, SWITCH),
            ("channels", channels, CHANNELS),
        ):  # fmt: skip
            if value not in known:
                raise UserError(f"{name} {refusal(value, known)}")
        self.stream, self.split = SWITCH[stream], channels == "split"
        phrases = [*phrases_of(texts.get("prompt", "")), *phrases_of(texts.get("hotwords", ""))]
        self.wish = Wish(model, OPENAI_MODEL, self.language, phrases=phrases)
        self.names = [*map(str, form.getlist(NAMES))] if self.split else []
        self.check_speakers()
        self.times = set(map(str, form.getlist("timestamp_granularities[]"))) or {"segment"}
        if unknown := self.times.difference(GRANULARITIES):
            raise UserError(f"timestamp_granularities[] {refusal(min(unknown), GRANULARITIES)}")
        self.warnings = [*self.without_effect(form)]

    def check_speakers(self) -> None:
        """Raise UserError for fields of speakers that do not fit together."""
        if self.form == "diarized_json" and not self.split:
            text = "needs channels=split, which makes each channel a speaker"
            raise UserError(f"response_format diarized_json {text}")
        if self.split and self.stream:
            raise UserError("stream: not with channels=split; /v1/stream takes several channels")
        for name in self.names:
            if not (1 <= len(name) <= LONGEST_NAME and name.isprintable()):
                text = f"expected 1 to {LONGEST_NAME} characters, got {shown(name, 60)}"
                raise UserError(f"{NAMES}: {text}")

    def without_effect(self, form: FormData) -> Iterator[str]:
        """Yield warnings about fields of the request that have no effect."""
        if given := [name for name in IGNORED if name in form]:
            yield f"{', '.join(given)}: no effect here"
        if NAMES in form and not self.split:
            yield f"{NAMES}: only channels=split, which makes each channel a speaker, uses it"
        if "timestamp_granularities[]" in form and (self.stream or self.form != "verbose_json"):
            yield "timestamp_granularities[]: only response_format verbose_json uses it"
        if self.stream and self.form != "json":
            yield f"response_format {self.form}: no effect on a stream of events"

    def warned(self, response: Response) -> Response:
        """Add the warnings to a response, as a header."""
        if warning := "; ".join([*self.grant.warnings, *self.warnings]):
            response.headers[WARNING] = ascii(warning)[1:-1]  # headers have no other letters
        return response

    def written(self, channels: list[Channel], seconds: float) -> Response:
        """Return the response with the segments of all channels, in the requested format."""
        call = [channel.recording(seconds) for channel in channels]
        turns = formats.passages_as_json(call) if len(call) > 1 else []
        said = turns or [{"text": segment.text} for segment in channels[0].segments]
        text = " ".join(each["text"] for each in said)
        if self.form == "text" and not turns:
            return PlainTextResponse(text + "\n")
        if self.form in ("text", "srt", "vtt"):
            form = "txt" if self.form == "text" else self.form
            return PlainTextResponse(formats.write(form, call))
        usage = {"type": "duration", "seconds": math.ceil(seconds)}
        if self.form == "json":
            more = {"turns": turns} if turns else {}
            return JSONResponse({"text": text, "usage": usage, **more})
        if self.form == "diarized_json":
            body = {"task": "transcribe", "duration": seconds, "text": text, "usage": usage}
            return JSONResponse(body | {"segments": diarized(formats.passages_as_json(call))})
        body = {
            "task": "transcribe", "language": self.language_used, "duration": seconds,
            "text": text, "usage": usage,
        }  # fmt: skip
        found = sorted(
            ((segment, each.keys) for each in channels for segment in each.segments),
            key=lambda pair: pair[0].spoken,
        )
        if "word" in self.times:
            words = [(word, keys) for segment, keys in found for word in segment.words]
            body["words"] = [
                {"word": w.text, "start": w.start, "end": w.end}
                | ({} if w.spaced else {"spaced": False}) | keys
                for w, keys in sorted(words, key=lambda pair: pair[0].start)
            ]  # fmt: skip
        if "segment" in self.times:
            body["segments"] = [verbose(i, each) | keys for i, (each, keys) in enumerate(found)]
        return JSONResponse(body)

    @property
    def language_used(self) -> str:
        """Language of the text: the requested one if the model has several."""
        grant = self.grant
        stated = grant.model.code_of(self.language) or grant.recognizer.language
        return stated or self.language or UNDETERMINED


def diarized(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return turns in OpenAI's schema of texts with speakers."""
    kind = {"type": "transcript.text.segment"}
    return [{**kind, "id": f"seg_{i}", **turn} for i, turn in enumerate(turns)]


def verbose(number: int, segment: Segment) -> dict[str, Any]:
    """Return a segment in OpenAI's schema; fields that a CTC network does not have are 0."""
    data = segment.text.encode()
    logs = [math.log(max(word.confidence, 1e-9)) for word in segment.words]
    return {
        "id": number, "seek": 0, "start": segment.spoken, "end": segment.spoken_end,
        "text": segment.text, "tokens": [], "temperature": 0.0,
        "avg_logprob": sum(logs) / max(1, len(logs)),
        "compression_ratio": len(data) / max(1, len(zlib.compress(data))), "no_speech_prob": 0.0,
    }  # fmt: skip


class Events(StreamingResponse):
    """A response of server-sent events; `stack` is closed after them or after a disconnect."""

    def __init__(self, texts: AsyncIterator[str], stack: AsyncExitStack) -> None:
        super().__init__(texts, media_type="text/event-stream")
        self.stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.stack:
            await super().__call__(scope, receive, send)


async def events(call: Call, decoding: Decoding) -> AsyncIterator[str]:
    """Yield server-sent events: the stable text as it grows, and the whole text at the end."""
    stable = StableText()
    try:
        while (update := await call.next_update()) is not None:
            if delta := stable.grown(update):
                yield event({"type": "transcript.text.delta", "delta": delta})
        more = {"warnings": decoding.warnings} if decoding.warnings else {}
        yield event({"type": "transcript.text.done", "text": stable.text, **more})
    except UserError as error:
        yield event({"type": "error", "error": {"message": str(error), "type": "server_error"}})


def event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
