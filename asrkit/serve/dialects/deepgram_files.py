"""Deepgram's POST /v1/listen: a file in the body, options in the address."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from asrkit.errors import UserError
from asrkit.runtime import Segment
from asrkit.serve.dialects.deepgram import (
    About,
    FileOptions,
    alternative,
    options_of,
    utterance,
)
from asrkit.serve.dialects.files import (
    HEADERS,
    calls_of,
    rejection,
    saved,
    too_large,
    unless_left,
)
from asrkit.serve.server import RefusedError, Server
from asrkit.serve.uploads import Decoders

RAW = "encoding: samples without a header are not read from a request: send a file such as WAV"


async def listen_to_file(request: Request, decoders: Decoders) -> Response:
    """Answer a request."""
    server, query, digest = decoders.server, request.query_params, hashlib.sha256()
    try:
        if query.get("encoding", "false") != "false":
            raise UserError(RAW)
        if request.headers.get("content-type", "").startswith("application/json"):
            raise UserError("url: the server reads no other address: send the file as the body")
        options, warnings = options_of(FileOptions, query)
        grant = await server.grant(options.wish())

        async def answer(path: Path) -> Response:
            async with calls_of(path, options.multichannel, grant, decoders) as (decoding, calls):
                found = results([await call.segments() for call in calls], options)
                metadata = About(grant.model).metadata(
                    digest.hexdigest(), decoding.seconds, decoding.channels,
                    [*grant.warnings, *warnings, *decoding.warnings],
                )  # fmt: skip
                return JSONResponse({"metadata": metadata, "results": found})

        async with AsyncExitStack() as stack:
            path = await saved(body(request, server, digest), server, stack)
            return await unless_left(request, answer(path))
    except (UserError, HTTPException, OSError) as error:
        return refused(rejection(error))


async def body(request: Request, server: Server, digest: "hashlib._Hash") -> AsyncIterator[bytes]:
    """Yield the body of a request, and hash it.

    Raises:
        RefusedError: before the body is read, if it is too large.
    """
    size = request.headers.get("content-length", "")
    if size.isdecimal() and int(size[:20]) > 1_000_000 * server.limits.upload_mb:
        raise too_large(server)
    async for data in request.stream():
        digest.update(data)
        yield data


def results(channels: list[list[Segment]], options: FileOptions) -> dict[str, object]:
    """Return the text of each channel, and the segments if they were asked for."""
    texts = []
    for segments in channels:
        text = " ".join(segment.text for segment in segments)
        words = [word for segment in segments for word in segment.words]
        texts.append({"alternatives": [alternative(text, words)]})
    found: dict[str, object] = {"channels": texts}
    if options.utterances:
        each = [(segment, number) for number, part in enumerate(channels) for segment in part]
        each.sort(key=lambda pair: pair[0].spoken)
        found["utterances"] = [utterance(*pair) for pair in each if pair[0].text]
    return found


def refused(error: RefusedError) -> JSONResponse:
    """Return an error in Deepgram's form."""
    body = {"err_code": error.reason.upper(), "err_msg": str(error)}
    return JSONResponse(body, error.status, HEADERS.get(error.status))
