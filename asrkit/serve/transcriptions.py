"""OpenAI's POST /v1/audio/transcriptions: a file in, its text out, whole or as it is recognised."""

import asyncio
import json
import math
import tempfile
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from asrkit import audio
from asrkit.errors import UserError, shown
from asrkit.kinds import refusal
from asrkit.runtime import Recognizer, Segment, formats
from asrkit.serve.calls import Call, News
from asrkit.serve.server import RefusedError, Server

FORMATS = ("json", "text", "srt", "vtt", "verbose_json")
# Of OpenAI's that change nothing here: nothing is sampled.
IGNORED = ("temperature", "chunking_strategy", "include[]")
KNOWN = (
    "file", "model", "language", "prompt", "response_format", "stream", "timestamp_granularities[]",
    *IGNORED,
)  # fmt: skip
BLOCK_S = 5.0


async def transcriptions(request: Request, server: Server) -> Response:
    """One request."""
    path: Path | None = None
    try:
        async with request.form(max_files=1, max_fields=20) as form:
            asked = Asked(form, server)
            path = await saved(asked.file, server)
        info = await asyncio.to_thread(audio.info, path)
        seconds = info.num_samples / info.sample_rate
        if seconds > server.limits.call_s:
            text = f"{seconds:.0f} s of audio: at most {server.limits.call_s:.0f} are taken"
            raise RefusedError(413, "too_long", text)
        recognizer = await server.recognizer_for(asked.hotwords)
        server.check_free()
        news = recognized(path, info.sample_rate, server, recognizer)
        if asked.stream:
            path = None  # `recognized` deletes it
            return StreamingResponse(events(news), media_type="text/event-stream")
        segments = [segment async for each in news for segment in each.segments]
        return asked.written(segments, seconds)
    except audio.AudioError as error:  # whose message names the file here
        return refused(UserError(str(error).replace(str(path), "the file")))
    except UserError as error:
        return refused(error)
    except HTTPException as error:  # a form that cannot be read
        return refused(UserError(error.detail))
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


def refused(error: UserError) -> JSONResponse:
    """An error as OpenAI words them."""
    status = error.status if isinstance(error, RefusedError) else 400
    reason = error.reason if isinstance(error, RefusedError) else "invalid_request"
    kind = "server_error" if status >= 500 else "invalid_request_error"
    body = {"message": str(error), "type": kind, "param": None, "code": reason}
    headers = {"Retry-After": "5"} if status == 503 else None
    return JSONResponse({"error": body}, status, headers)


class Asked:
    """What a request asks for.

    Raises:
        UserError: for a field that is unknown, missing or has no such value.
    """

    def __init__(self, form: FormData, server: Server) -> None:
        for name in form:
            if name not in KNOWN:
                raise UserError(f"the field {refusal(name, KNOWN)}")
        texts = {name: value for name, value in form.items() if isinstance(value, str)}
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise UserError("file: expected an audio file")
        if others := form.keys() - texts.keys() - {"file"}:
            raise UserError(f"{shown(min(others))}: expected text, not a file")
        if texts.get("model", server.name) != server.name:
            text = f"no model {shown(texts['model'])} here, but {server.name!r}"
            raise RefusedError(404, "model_not_found", text)
        self.file, self.form = file, texts.get("response_format", "json")
        if self.form not in FORMATS:
            raise UserError(f"response_format {refusal(self.form, FORMATS)}")
        self.language = texts.get("language", "en")
        self.stream = texts.get("stream", "").lower() in ("true", "1")
        prompt = texts.get("prompt", "") if server.takes_hotwords else ""
        self.hotwords = [each for each in map(str.strip, prompt.split(",")) if each]
        self.times = set(map(str, form.getlist("timestamp_granularities[]"))) or {"segment"}

    def written(self, segments: list[Segment], seconds: float) -> Response:
        """The recognised segments in the form that is asked for."""
        words = [word for segment in segments for word in segment.words]
        text = " ".join(segment.text for segment in segments)
        if self.form == "text":
            return PlainTextResponse(text + "\n")
        if self.form in ("srt", "vtt"):
            recording = formats.Recording(words, duration=seconds)
            return PlainTextResponse(formats.write(self.form, [recording]))
        usage = {"type": "duration", "seconds": math.ceil(seconds)}
        if self.form == "json":
            return JSONResponse({"text": text, "usage": usage})
        body = {
            "task": "transcribe", "language": self.language, "duration": seconds, "text": text,
            "usage": usage,
        }  # fmt: skip
        if "word" in self.times:
            body["words"] = [{"word": w.text, "start": w.start, "end": w.end} for w in words]
        if "segment" in self.times:
            body["segments"] = [verbose(i, segment) for i, segment in enumerate(segments)]
        return JSONResponse(body)


def verbose(number: int, segment: Segment) -> dict[str, Any]:
    """A segment with all that OpenAI's schema requires; what a CTC network has not got is 0."""
    data = segment.text.encode()
    logs = [math.log(max(word.confidence, 1e-9)) for word in segment.words]
    return {
        "id": number, "seek": 0, "start": segment.start, "end": segment.end, "text": segment.text,
        "tokens": [], "temperature": 0.0, "avg_logprob": sum(logs) / max(1, len(logs)),
        "compression_ratio": len(data) / max(1, len(zlib.compress(data))), "no_speech_prob": 0.0,
    }  # fmt: skip


async def saved(file: UploadFile, server: Server) -> Path:
    """A copy of an upload, in a file of its own.

    Raises:
        RefusedError: for one that is too large.
    """
    left = server.limits.upload_mb * 1_000_000
    with tempfile.NamedTemporaryFile(prefix="asrkit-", delete=False) as copy:
        path = Path(copy.name)
        try:
            while data := await file.read(1 << 20):
                left -= len(data)
                if left < 0:
                    text = f"at most {server.limits.upload_mb} MB are taken"
                    raise RefusedError(413, "too_large", text)
                copy.write(data)
        except BaseException:
            path.unlink()
            raise
    return path


async def recognized(
    path: Path, sample_rate: int, server: Server, recognizer: Recognizer
) -> AsyncIterator[News]:
    """What becomes known of a file, which is deleted in the end."""
    try:
        with server.call(sample_rate, recognizer) as call:
            feeding = asyncio.ensure_future(feed(call, audio.blocks(path, BLOCK_S)))
            try:
                while (news := await call.news()) is not None:
                    yield news
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
    finally:
        path.unlink(missing_ok=True)


async def feed(call: Call, blocks: Iterator[tuple[np.ndarray, int]]) -> None:
    """A file's audio into a call, as fast as the network takes it."""
    try:
        while (block := await asyncio.to_thread(next, blocks, None)) is not None:
            await call.accept(block[0])
        call.end()
    except UserError as error:
        call.fail(error)


async def events(news: AsyncIterator[News]) -> AsyncIterator[str]:
    """Server-sent events: what stays of the text as it is recognised, and the whole at the end."""
    text = sent = ""
    try:
        async for each in news:
            text = joined([text, *(segment.text for segment in each.segments)])
            stable = joined([text, each.stable_text])
            if stable != sent:
                yield event({"type": "transcript.text.delta", "delta": stable[len(sent) :]})
                sent = stable
        yield event({"type": "transcript.text.done", "text": text})
    except UserError as error:
        yield event({"type": "error", "error": {"message": str(error), "type": "server_error"}})


def joined(texts: list[str]) -> str:
    return " ".join(filter(None, texts))


def event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
