"""Files that clients send over HTTP: from the body of a request to a response with its text."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from asrkit.errors import UserError
from asrkit.runtime import Segment
from asrkit.serve.calls import Call
from asrkit.serve.converse import stop
from asrkit.serve.server import Grant, RefusedError, Server, refusal_of
from asrkit.serve.uploads import Decoders, Decoding

CLIENT_LEFT = 499  # status in the log; nobody receives it
HEADERS = {
    # Without "close" a client would send all of a rejected body.
    401: {"WWW-Authenticate": "Bearer", "Connection": "close"},
    403: {"Connection": "close"},
    413: {"Connection": "close"},
    503: {"Retry-After": "5", "Connection": "close"},
}


class FileRequest(NamedTuple):
    """A request for the text of a file."""

    grant: Grant  # model and recogniser for the options
    split: bool  # whether each channel is recognised alone
    blocks: AsyncIterator[bytes]  # bytes of the file
    response: Callable[[Decoding, list[list[Segment]]], Response]  # of each channel's segments


class Service(NamedTuple):
    """The forms of a service's requests and errors.

    Attributes:
        read: reads the options, or raises UserError; the stack closes the file.
        refused: returns the response with an error.
    """

    read: Callable[[Request, Server, AsyncExitStack], Awaitable[FileRequest]]
    refused: Callable[[RefusedError], Response]


async def transcribe(request: Request, service: Service, decoders: Decoders) -> Response:
    """Answer a request for the text of a file."""
    try:
        async with AsyncExitStack() as stack:
            server = decoders.server
            asked = await service.read(bounded(request, server), server, stack)
            path = await saved(asked.blocks, stack)
            return await unless_left(request, answer(asked, path, decoders))
    except (UserError, HTTPException, OSError) as error:
        return service.refused(rejection(error))


async def answer(asked: FileRequest, path: Path, decoders: Decoders) -> Response:
    """Return the response for the file at `path`.

    The calls get the file's audio as fast as the network runs.
    """
    model, recognizer, _ = asked.grant
    async with decoders.decoding(path, asked.split) as decoding:
        with ExitStack() as stack:
            calls = [
                stack.enter_context(
                    decoders.server.call(model, decoding.sample_rate, recognizer, patient=True)
                )
                for _ in range(decoding.channels)
            ]
            feeding = asyncio.ensure_future(feed(calls, decoding))
            try:
                return asked.response(decoding, [await call.segments() for call in calls])
            finally:
                await stop([feeding])


async def feed(calls: list[Call], decoding: Decoding) -> None:
    try:
        async for samples in decoding.blocks():
            for call, own in zip(calls, samples.T, strict=True):
                await call.accept(np.ascontiguousarray(own))
        for call in calls:
            call.finish()
    except Exception as error:  # any error: the calls must not wait for more audio
        for call in calls:
            call.fail(error)


def bounded(request: Request, server: Server) -> Request:
    """Return the request with a limit on its body.

    Raises:
        RefusedError: here or while the body is read, if it is too large.
    """
    most = left = server.limits.upload_mb * 1_000_000
    error = RefusedError(413, "too_large", f"a file may have at most {most // 1_000_000} MB")
    size = request.headers.get("content-length", "")
    if size.isdecimal() and int(size[:20]) > most:
        raise error

    async def receive() -> Message:
        nonlocal left
        message = await request.receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise error
        return message

    return Request(request.scope, receive)


async def saved(blocks: AsyncIterator[bytes], stack: AsyncExitStack) -> Path:
    """Write an upload to a file that `stack` deletes, and return the file's path.

    On Linux the file has no name, so that a killed process leaves no file behind.
    """
    descriptors = Path(f"/proc/{os.getpid()}/fd")  # where another process opens a nameless file
    is_nameless = descriptors.is_dir()
    make: Any = tempfile.TemporaryFile if is_nameless else tempfile.NamedTemporaryFile
    file = stack.enter_context(make(prefix="asrkit-"))
    async for data in blocks:
        file.write(data)
    file.flush()
    return descriptors / str(file.fileno()) if is_nameless else Path(file.name)


async def unless_left(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
    """Return the result of the work, or cancel the work if the client disconnects.

    Otherwise hours of audio would occupy the place of files that other clients wait for.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(left(request))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else Response(status_code=CLIENT_LEFT)
    finally:
        await stop([working, leaving])


async def left(request: Request) -> None:
    """Wait until the client disconnects; its request must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def rejection(error: UserError | HTTPException | OSError) -> RefusedError:
    """Return the error to report for a request that failed."""
    if isinstance(error, OSError):  # a full disk, too many processes
        text = f"the server cannot store a file now: {error.strerror}"
        return RefusedError(503, "system", text)
    if isinstance(error, HTTPException):
        error = UserError(error.detail)
    return refusal_of(error, "invalid_request")
