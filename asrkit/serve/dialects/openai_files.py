"""OpenAI's POST /v1/audio/transcriptions: the text of a file, at once or as a stream of events."""

import json
import math
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from asrkit.audio.samples import channel_name
from asrkit.errors import UserError, shown
from asrkit.registry import refusal
from asrkit.runtime import Segment, formats
from asrkit.serve.calls import Call
from asrkit.serve.dialects.files import HEADERS, Events, FileRequest
from asrkit.serve.dialects.parsing import phrases_of
from asrkit.serve.dialects.stable_text import StableText
from asrkit.serve.server import Model, RefusedError, Server, Wish
from asrkit.serve.uploads import Decoding

OPENAI_MODEL = re.compile(r"whisper-1|gpt-[\w.-]+")
TIMES, NAMES = "timestamp_granularities[]", "known_speaker_names[]"  # names: of the channels
# Fields of OpenAI's and faster-whisper's servers that have no effect: asrkit does not sample texts.
IGNORED = (
    "temperature", "chunking_strategy", "include[]", "known_speaker_references[]", "vad_filter",
)  # fmt: skip
KNOWN = (
    "file", "model", "language", "prompt", "hotwords", "response_format", "stream", "channels",
    TIMES, NAMES, *IGNORED,
)  # fmt: skip
SWITCH = {"false": False, "0": False, "true": True, "1": True}
CHOICES: dict[str, tuple[str, ...]] = {  # values of fields; the first one is the default
    "response_format": ("json", "text", "srt", "vtt", "verbose_json", "diarized_json"),
    "channels": ("mix", "split"),
    "stream": (*SWITCH,),
    TIMES: ("segment", "word"),
}
UNDETERMINED = "und"  # ISO 639's code of a language that nobody stated
WARNING = "X-Asrkit-Warning"  # header of a response
LONGEST_NAME = 100  # characters


def refused(error: RefusedError) -> JSONResponse:
    """Return an error in OpenAI's form."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    body = {"message": str(error), "type": kind, "param": None, "code": error.reason}
    return JSONResponse({"error": body}, error.status, HEADERS.get(error.status))


def model_of(server: Server, name: str) -> Model:
    """Return the model of this name; RefusedError for a model that is not served."""
    try:
        return server.model(name)
    except UserError as error:
        raise RefusedError(404, "model_not_found", str(error)) from None


class Transcription(FileRequest):
    """The fields of a request.

    Raises:
        UserError: for a field that is unknown or missing, or has an invalid value.
    """

    refused = staticmethod(refused)

    @classmethod
    async def of(cls, request: Request, server: Server, stack: AsyncExitStack) -> "Transcription":
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "multipart/form-data":
            raise UserError(f"expected multipart/form-data with a file, got {shown(kind)}")
        asked = cls(await stack.enter_async_context(request.form(max_files=1, max_fields=20)))
        name = asked.wish.model
        if name is not None and not OPENAI_MODEL.fullmatch(name):
            model_of(server, name)
        asked.grant = await server.grant(asked.wish)
        return asked

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
        self.file, self.language = file, texts.get("language", "")
        phrases = [*phrases_of(texts.get("prompt", "")), *phrases_of(texts.get("hotwords", ""))]
        self.wish = Wish(texts.get("model"), OPENAI_MODEL, self.language, phrases=phrases)
        values = {
            name: [*map(str, form.getlist(name))] or [known[0]] for name, known in CHOICES.items()
        }
        values["stream"] = [values["stream"][0].lower()]
        for name, known in CHOICES.items():
            for value in values[name]:
                if value not in known:
                    raise UserError(f"{name} {refusal(value, known)}")
        self.form, self.times = values["response_format"][0], values[TIMES]
        self.streams, self.split = SWITCH[values["stream"][0]], values["channels"] == ["split"]
        self.names = [*map(str, form.getlist(NAMES))] if self.split else []
        self.check_speakers()
        self.warnings = [*self.without_effect(form)]

    def check_speakers(self) -> None:
        """Raise UserError for fields of speakers that do not fit together."""
        if self.form == "diarized_json" and not self.split:
            text = "needs channels=split, which makes each channel a speaker"
            raise UserError(f"response_format diarized_json {text}")
        if self.split and self.streams:
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
        if TIMES in form and (self.streams or self.form != "verbose_json"):
            yield f"{TIMES}: only response_format verbose_json uses it"
        if self.streams and self.form != "json":
            yield f"response_format {self.form}: no effect on a stream of events"

    async def blocks(self) -> AsyncIterator[bytes]:
        while data := await self.file.read(1 << 20):
            yield data

    def warned(self, response: Response) -> Response:
        """Add the warnings to a response, as a header."""
        if warning := "; ".join([*self.grant.warnings, *self.warnings]):
            response.headers[WARNING] = ascii(warning)[1:-1]  # headers have no other letters
        return response

    def events(self, decoding: Decoding, call: Call, stack: AsyncExitStack) -> Response:
        return self.warned(Events(events(call, decoding), stack))

    def response(self, decoding: Decoding, channels: list[list[Segment]]) -> Response:
        self.warnings += decoding.warnings
        names = self.names or [*map(channel_name, range(len(channels)))]
        if len(names) != len(channels):
            raise UserError(f"{NAMES}: {len(channels)} channels, but {len(names)} names")
        keys: list[dict[str, Any]] = [
            {"channel": number, "speaker": name} if self.split else {}
            for number, name in enumerate(names)
        ]
        return self.warned(self.written([*zip(channels, keys, strict=True)], decoding.seconds))

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
        turns = formats.passages_as_json(call) if len(call) > 1 else []
        text = " ".join(each["text"] for each in turns) or call[0].text
        if self.form in ("text", "srt", "vtt"):
            return PlainTextResponse(formats.write(self.form.replace("text", "txt"), call))
        body: dict[str, Any] = {
            "text": text,
            "usage": {"type": "duration", "seconds": math.ceil(seconds)},
        }
        if self.form == "json":
            return JSONResponse(body | ({"turns": turns} if turns else {}))
        body |= {"task": "transcribe", "duration": seconds}
        if self.form == "diarized_json":
            kind = {"type": "transcript.text.segment"}
            body["segments"] = [
                {**kind, "id": f"seg_{number}", **turn}
                for number, turn in enumerate(formats.passages_as_json(call))
            ]
            return JSONResponse(body)
        body["language"] = self.language_used
        found = [(segment, keys) for segments, keys in channels for segment in segments]
        found.sort(key=lambda pair: pair[0].spoken)
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
        stated = self.grant.model.code_of(self.language) or self.grant.recognizer.language
        return stated or self.language or UNDETERMINED


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
