"""Deepgram's POST /v1/listen, with options and results as those of the live protocol.

The file is the body of the request, and the options are in the address.
"""

import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timezone
from typing import Annotated, Any, Literal, TypeVar
from uuid import NAMESPACE_OID, uuid4, uuid5

from pydantic import BaseModel, Field
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from asrkit.errors import UserError
from asrkit.runtime import Segment, Word
from asrkit.runtime.words import confidence_of, joined
from asrkit.serve.calls import MOST_CHANNELS
from asrkit.serve.dialects.files import HEADERS, FileRequest, Service
from asrkit.serve.dialects.parsing import Name, Rate, checked, without_effect
from asrkit.serve.server import Model, RefusedError, Server, Wish
from asrkit.serve.uploads import Decoding
from asrkit.version import __version__

MODEL = re.compile(r"(nova|enhanced|base|general|whisper|flux)\b[\w.-]*")  # Deepgram's own
SHORTEST_MS = 200  # pause: a shorter one is also within words
REFUSED = {  # options that a client relies on, and why they cannot be had
    "callback": "the server calls no other address: read the response",
    "redact": "the server removes nothing from the text",
}
OFF = ("", "false", "0")


class Options(BaseModel):
    """The options of a request that have an effect."""

    model: Name | None = None
    language: Name = ""
    keyterm: list[Annotated[str, Field(max_length=1000)]] = []
    multichannel: bool = False
    """Whether each channel is recognised alone; otherwise channels are mixed."""

    def wish(self, pause_ms: int | None = None) -> Wish:
        return Wish(self.model, MODEL, self.language, phrases=self.keyterm, pause_ms=pause_ms)


class LiveOptions(Options):
    encoding: Literal["linear16", "mulaw", "alaw"]
    sample_rate: Rate
    channels: Annotated[int, Field(ge=1, le=MOST_CHANNELS)] = 1
    interim_results: bool = False
    endpointing: bool | Annotated[int, Field(ge=0, le=60_000)] = True
    """Pause that ends a segment, ms; true: the server's."""

    @property
    def pause_ms(self) -> int | None:
        """Pause that ends a segment, ms; 0: none does; None: the server's."""
        if isinstance(self.endpointing, bool):
            return None if self.endpointing else 0
        return max(SHORTEST_MS, self.endpointing) if self.endpointing > 0 else 0


class FileOptions(Options):
    utterances: bool = False
    """Whether the result has a list of segments."""


Kind = TypeVar("Kind", bound=Options)


def options_of(kind: type[Kind], query: QueryParams) -> tuple[Kind, list[str]]:
    """Return the options of a request, and warnings about them.

    Raises:
        UserError: for an invalid value, and for an option that the client relies on.
    """
    given: dict[str, Any] = {**query, "keyterm": query.getlist("keyterm")}
    others = [name for name in query if name not in kind.model_fields and name != "token"]
    without = [name for name in others if query[name].lower() not in OFF]
    for name in REFUSED.keys() & without:
        raise UserError(f"{name}: {REFUSED[name]}")
    options = checked(kind.model_validate, given)
    warnings = [*filter(None, [without_effect(without)])]
    pause = options.endpointing if isinstance(options, LiveOptions) else True
    if not isinstance(pause, bool) and 0 < pause < SHORTEST_MS:
        warnings.append(f"endpointing {pause} is within words too: {SHORTEST_MS} is used")
    return options, warnings


class About:
    """The identity of a request, as its messages have it.

    Args:
        model: model of the request.
    """

    def __init__(self, model: Model) -> None:
        self.id, self.model_id = str(uuid4()), str(uuid5(NAMESPACE_OID, model.name))
        self.created = datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
        info = {"name": model.name, "version": __version__, "arch": "asrkit"}
        self.short: dict[str, Any] = {  # metadata of a live result
            "request_id": self.id, "model_info": info, "model_uuid": self.model_id,
        }  # fmt: skip

    def metadata(
        self, sha256: str, duration: float, channels: int, warnings: Sequence[str]
    ) -> dict[str, Any]:
        """Return the metadata of a whole request."""
        more = {"warnings": [*warnings]} if warnings else {}
        return {
            "transaction_key": "deprecated", "request_id": self.id, "sha256": sha256,
            "created": self.created, "duration": round(duration, 3), "channels": channels,
            "models": [self.model_id],
            "model_info": {self.model_id: self.short["model_info"]}, **more,
        }  # fmt: skip


def alternative(words: Sequence[Word]) -> dict[str, Any]:
    """Return the text of words, with each of them."""
    shown = [
        {
            "word": each.text, "start": each.start, "end": each.end,
            "confidence": each.confidence, "punctuated_word": each.text,
        }
        | ({} if each.spaced else {"spaced": False})
        for each in words
    ]  # fmt: skip
    return {"transcript": joined(words), "confidence": confidence_of(words), "words": shown}


async def read(request: Request, server: Server, stack: AsyncExitStack) -> FileRequest:
    """Read the options of a request whose body is the file, and get its grant."""
    if request.headers.get("content-type", "").startswith("application/json"):
        raise UserError("url: the server reads no other address: send the file as the body")
    options, warnings = options_of(FileOptions, request.query_params)
    grant, digest = await server.grant(options.wish()), hashlib.sha256()

    async def blocks() -> AsyncIterator[bytes]:
        async for data in request.stream():
            digest.update(data)
            yield data

    def response(decoding: Decoding, channels: list[list[Segment]]) -> Response:
        metadata = About(grant.model).metadata(
            digest.hexdigest(), decoding.seconds, decoding.channels,
            [*grant.warnings, *warnings, *decoding.warnings],
        )  # fmt: skip
        texts = [alternative([w for each in own for w in each.words]) for own in channels]
        results: dict[str, Any] = {"channels": [{"alternatives": [text]} for text in texts]}
        if options.utterances:
            segments = [(each, number) for number, own in enumerate(channels) for each in own]
            segments.sort(key=lambda pair: pair[0].spoken)
            results["utterances"] = [
                {"start": each.spoken, "end": each.spoken_end, "channel": number,
                 "id": str(uuid4()), **alternative(each.words)}
                for each, number in segments if each.text
            ]  # fmt: skip
        return JSONResponse({"metadata": metadata, "results": results})

    return FileRequest(grant, options.multichannel, blocks(), response)


def refused(error: RefusedError) -> Response:
    """Return an error in Deepgram's form."""
    body = {"err_code": error.reason.upper(), "err_msg": str(error)}
    return JSONResponse(body, error.status, HEADERS.get(error.status))


DEEPGRAM = Service(read, refused)
