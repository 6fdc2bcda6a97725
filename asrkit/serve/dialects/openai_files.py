"""OpenAI's POST /v1/audio/transcriptions: the text of a file."""

import math
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from asrkit.audio.samples import channel_name
from asrkit.errors import UserError, shown
from asrkit.runtime import Segment, formats
from asrkit.serve.dialects.files import HEADERS, FileRequest, Service
from asrkit.serve.dialects.parsing import checked, phrases_of, without_effect
from asrkit.serve.server import Grant, RefusedError, Server, Wish
from asrkit.serve.uploads import Decoding

OPENAI_MODEL = re.compile(r"whisper-1|gpt-[\w.-]+")
TIMES = "timestamp_granularities[]"
# Fields of OpenAI's and faster-whisper's servers that have no effect, without the [] of lists and
# the [key] of objects: asrkit does not sample texts.
IGNORED = (
    "temperature", "chunking_strategy", "include", "known_speaker_names",
    "known_speaker_references", "languages", "vad_filter",
)  # fmt: skip
MOST_FIELDS, FIELD_BYTES = 100, 1 << 18  # of a form; a keyword is a field
UNDETERMINED = "und"  # ISO 639's code of a language that nobody stated
WARNING = "X-Asrkit-Warning"  # header of a response


class Fields(BaseModel):
    """The fields of a request beside the file."""

    model_config = ConfigDict(extra="forbid")
    model: str | None = None
    language: str = ""
    prompt: str = ""
    hotwords: str = ""
    keywords: Annotated[list[str], Field(alias="keywords[]")] = []
    response_format: Literal["json", "text", "srt", "vtt", "verbose_json"] = "json"
    channels: Literal["mix", "split"] = "mix"
    stream: bool = False
    times: Annotated[list[Literal["segment", "word"]], Field(alias=TIMES)] = ["segment"]


def refused(error: RefusedError) -> JSONResponse:
    """Return an error in OpenAI's form."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    body = {"message": str(error), "type": kind, "param": None, "code": error.reason}
    return JSONResponse({"error": body}, error.status, HEADERS.get(error.status))


async def read(request: Request, server: Server, stack: AsyncExitStack) -> FileRequest:
    """Read a request, and get its grant."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise UserError(f"expected multipart/form-data with a file, got {shown(kind)}")
    form = request.form(max_files=1, max_fields=MOST_FIELDS, max_part_size=FIELD_BYTES)
    asked = Transcription(await stack.enter_async_context(form))
    name = asked.wish.model or ""
    try:
        asked.grant = await server.grant(asked.wish)
    except UserError as error:
        if name in server.models or OPENAI_MODEL.fullmatch(name):
            raise
        raise RefusedError(404, "model_not_found", str(error)) from None
    return FileRequest(asked.grant, asked.split, asked.blocks(), asked.response)


class Transcription:
    """A form with a file.

    Raises:
        UserError: for a field that is unknown or missing, or has an invalid value.
    """

    grant: Grant

    def __init__(self, form: FormData) -> None:
        values: dict[str, Any] = {name: form.getlist(name) for name in form}
        (self.file, *_) = values.pop("file", [None])
        if not isinstance(self.file, UploadFile):
            raise UserError("file: expected an audio file")
        unused = [name for name in values if name.partition("[")[0] in IGNORED]
        values = {
            name: each[0] if len(each) == 1 and not name.endswith("[]") else each
            for name, each in values.items()
            if name not in unused
        }
        self.fields = fields = checked(Fields.model_validate, values)
        if fields.stream:
            raise UserError("stream: files are answered at once; /v1/stream sends text as it grows")
        self.split = fields.channels == "split"
        unused += [TIMES] if TIMES in values and fields.response_format != "verbose_json" else []
        self.warnings = [*filter(None, [without_effect(unused)])]
        phrases = phrases_of(fields.prompt, fields.hotwords, *fields.keywords)
        self.wish = Wish(fields.model, OPENAI_MODEL, fields.language, phrases=phrases)

    async def blocks(self) -> AsyncIterator[bytes]:
        while data := await self.file.read(1 << 20):
            yield data

    def response(self, decoding: Decoding, channels: list[list[Segment]]) -> Response:
        keys: list[dict[str, Any]] = [
            {"channel": number, "speaker": channel_name(number)} if self.split else {}
            for number in range(len(channels))
        ]
        response = self.written([*zip(channels, keys, strict=True)], decoding.seconds)
        if warning := "; ".join([*self.grant.warnings, *self.warnings, *decoding.warnings]):
            response.headers[WARNING] = ascii(warning)[1:-1]  # headers have no other letters
        return response

    def written(
        self, channels: list[tuple[list[Segment], dict[str, Any]]], seconds: float
    ) -> Response:
        """Return the response in the requested format.

        Args:
            channels: segments of each channel, and the keys that tell its results from others.
            seconds: length of the file.
        """
        call = [
            formats.Recording(
                [word for segment in segments for word in segment.words], duration=seconds, **keys
            )
            for segments, keys in channels
        ]
        form, times = self.fields.response_format, self.fields.times
        if form in ("text", "srt", "vtt"):
            return PlainTextResponse(formats.write(form.replace("text", "txt"), call))
        turns = formats.passages_as_json(call) if len(call) > 1 else []
        body: dict[str, Any] = {
            "text": " ".join(each["text"] for each in turns) or call[0].text,
            "usage": {"type": "duration", "seconds": math.ceil(seconds)},
        }
        if form == "json":
            return JSONResponse(body | ({"turns": turns} if turns else {}))
        body |= {"task": "transcribe", "duration": seconds, "language": self.language_used}
        pairs = [(segment, keys) for segments, keys in channels for segment in segments]
        pairs.sort(key=lambda pair: pair[0].spoken)
        if "word" in times:
            words = [(word, keys) for segment, keys in pairs for word in segment.words]
            body["words"] = [
                {"word": w.text, "start": w.start, "end": w.end}
                | ({} if w.spaced else {"spaced": False}) | keys
                for w, keys in sorted(words, key=lambda pair: pair[0].start)
            ]  # fmt: skip
        if "segment" in times:
            body["segments"] = [verbose(i, each) | keys for i, (each, keys) in enumerate(pairs)]
        return JSONResponse(body)

    @property
    def language_used(self) -> str:
        """Language of the text: the requested one if the model has several."""
        asked = self.fields.language
        stated = self.grant.model.code_of(asked) or self.grant.recognizer.language
        return stated or asked or UNDETERMINED


def verbose(number: int, segment: Segment) -> dict[str, Any]:
    """Return a segment in OpenAI's schema; fields that a CTC network does not have are 0."""
    logs = [math.log(max(word.confidence, 1e-9)) for word in segment.words]
    return {
        "id": number, "seek": 0, "start": segment.spoken, "end": segment.spoken_end,
        "text": segment.text, "tokens": [], "temperature": 0.0,
        "avg_logprob": sum(logs) / max(1, len(logs)), "compression_ratio": 0.0,
        "no_speech_prob": 0.0,
    }  # fmt: skip


OPENAI = Service(read, refused)
