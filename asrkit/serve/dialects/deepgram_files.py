"""Deepgram's POST /v1/listen: a file in the body, options in the address."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from asrkit.errors import UserError
from asrkit.runtime import Segment
from asrkit.serve.dialects.deepgram import About, FileOptions, alternative, options_of
from asrkit.serve.dialects.files import HEADERS, FileRequest
from asrkit.serve.server import RefusedError, Server
from asrkit.serve.uploads import Decoding

RAW = "encoding: samples without a header are not read from a request: send a file such as WAV"


class ListenToFile(FileRequest):
    """A request whose body is the file.

    Raises:
        UserError: for an invalid option.
    """

    def __init__(self, request: Request) -> None:
        if request.query_params.get("encoding", "false") != "false":
            raise UserError(RAW)
        if request.headers.get("content-type", "").startswith("application/json"):
            raise UserError("url: the server reads no other address: send the file as the body")
        self.request, self.digest = request, hashlib.sha256()
        self.options, self.warnings = options_of(FileOptions, request.query_params)
        self.split = self.options.multichannel

    @classmethod
    async def of(cls, request: Request, server: Server, stack: AsyncExitStack) -> "ListenToFile":
        asked = cls(request)
        asked.grant = await server.grant(asked.options.wish())
        return asked

    async def blocks(self) -> AsyncIterator[bytes]:
        async for data in self.request.stream():
            self.digest.update(data)
            yield data

    def response(self, decoding: Decoding, channels: list[list[Segment]]) -> Response:
        warnings = [*self.grant.warnings, *self.warnings, *decoding.warnings]
        metadata = About(self.grant.model).metadata(
            self.digest.hexdigest(), decoding.seconds, decoding.channels, warnings
        )
        texts = [alternative([w for each in own for w in each.words]) for own in channels]
        results: dict[str, Any] = {"channels": [{"alternatives": [text]} for text in texts]}
        if self.options.utterances:
            segments = [(each, number) for number, own in enumerate(channels) for each in own]
            segments.sort(key=lambda pair: pair[0].spoken)
            results["utterances"] = [utterance(*pair) for pair in segments if pair[0].text]
        return JSONResponse({"metadata": metadata, "results": results})

    @staticmethod
    def refused(error: RefusedError) -> Response:
        body = {"err_code": error.reason.upper(), "err_msg": str(error)}
        return JSONResponse(body, error.status, HEADERS.get(error.status))


def utterance(segment: Segment, channel: int) -> dict[str, object]:
    times = {"start": segment.spoken, "end": segment.spoken_end}
    return {**times, "channel": channel, "id": str(uuid4()), **alternative(segment.words)}
