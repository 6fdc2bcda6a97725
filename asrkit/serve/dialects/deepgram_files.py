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
    begun,
    fed,
    rejection,
    saved,
    too_large,
    unless_left,
)
from asrkit.serve.server import Grant, RefusedError, Server
from asrkit.serve.uploads import Decoders

NOT_FOR_FILES = {
    "encoding": "samples without a header are not read from a request: send a file such as WAV",
}


async def listen_to_file(request: Request, server: Server, decoders: Decoders) -> Response:
    """Answer a request."""
    try:
        for name, why in NOT_FOR_FILES.items():
            if request.query_params.get(name, "false") != "false":
                raise UserError(f"{name}: {why}")
        if request.headers.get("content-type", "").startswith("application/json"):
            raise UserError("url: the server reads no other address: send the file as the body")
        options, warnings = options_of(FileOptions, request.query_params)
        grant = await server.grant(options.wish())
        warnings = [*grant.warnings, *warnings]
        digest = hashlib.sha256()
        async with AsyncExitStack() as stack:
            path = await saved(body(request, server, digest), server, stack)
            work = answer(options, grant, warnings, path, digest.hexdigest(), server, decoders)
            return await unless_left(request, work)
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


async def answer(
    options: FileOptions, grant: Grant, warnings: list[str], path: Path, sha256: str,
    server: Server, decoders: Decoders,
) -> Response:  # fmt: skip
    """Return the response for the file at `path`."""
    async with AsyncExitStack() as stack:
        opening = decoders.decoding(path, options.multichannel)
        decoding = await stack.enter_async_context(opening)
        calls = begun(decoding, server, grant.model, grant.recognizer, stack)
        await stack.enter_async_context(fed(calls, decoding))
        channels = [await call.segments() for call in calls]
        warnings = [*warnings, *decoding.warnings]
        about = About(grant.model)
        metadata = about.metadata(sha256, decoding.seconds, decoding.channels, warnings)
        return JSONResponse({"metadata": metadata, "results": results(channels, options)})


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


def refused(error: UserError) -> JSONResponse:
    """Return an error in Deepgram's form."""
    status, reason = 400, "INVALID_REQUEST"
    if isinstance(error, RefusedError):
        status, reason = error.status, error.reason.upper()
    return JSONResponse({"err_code": reason, "err_msg": str(error)}, status, HEADERS.get(status))
