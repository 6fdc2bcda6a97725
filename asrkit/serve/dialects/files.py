"""Files that clients send over HTTP: from the body of a request to a call."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from asrkit.errors import UserError
from asrkit.serve.calls import Call, CallError
from asrkit.serve.converse import stop
from asrkit.serve.server import Grant, RefusedError, Server
from asrkit.serve.uploads import Decoders, Decoding

CLIENT_LEFT = 499  # status in the log; nobody receives it
HEADERS = {
    # Without "close" a client would send all of a rejected body.
    401: {"WWW-Authenticate": "Bearer", "Connection": "close"},
    403: {"Connection": "close"},
    413: {"Connection": "close"},
    503: {"Retry-After": "5", "Connection": "close"},
}


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
    if isinstance(error, CallError) and isinstance(error.__cause__, UserError):
        error = error.__cause__
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, OSError):  # a full disk, too many processes
        text = f"the server cannot store a file now: {error.strerror}"
        return RefusedError(503, "system", text)
    text = error.detail if isinstance(error, HTTPException) else str(error)
    return RefusedError(400, "invalid_request", text)


def too_large(server: Server) -> RefusedError:
    return RefusedError(413, "too_large", f"a file may have at most {server.limits.upload_mb} MB")


async def saved(blocks: AsyncIterator[bytes], server: Server, stack: AsyncExitStack) -> Path:
    """Write an upload to a file that `stack` deletes, and return the file's path.

    On Linux the file has no name, so that a killed process leaves no file behind.

    Raises:
        RefusedError: if the upload is too large.
    """
    left = server.limits.upload_mb * 1_000_000
    descriptors = Path(f"/proc/{os.getpid()}/fd")  # where another process opens a nameless file
    nameless = descriptors.is_dir()
    if nameless:
        copy: Any = tempfile.TemporaryFile(prefix="asrkit-")  # noqa: SIM115
        stack.enter_context(copy)
        path = descriptors / str(copy.fileno())
    else:
        copy = tempfile.NamedTemporaryFile(prefix="asrkit-", delete=False)  # noqa: SIM115
        stack.callback(os.unlink, copy.name)
        path = Path(copy.name)
    with nullcontext(copy) if nameless else copy:
        async for data in blocks:
            left -= len(data)
            if left < 0:
                raise too_large(server)
            copy.write(data)
        copy.flush()
    return path


@asynccontextmanager
async def calls_of(
    path: Path, split: bool, grant: Grant, decoders: Decoders
) -> AsyncIterator[tuple[Decoding, list[Call]]]:
    """A context manager of a file that is decoded, and of a call for each of its channels.

    The calls get the file's audio as fast as the network runs.
    """
    async with AsyncExitStack() as stack:
        decoding = await stack.enter_async_context(decoders.decoding(path, split))
        model, rate, recognizer = grant.model, decoding.sample_rate, grant.recognizer
        calls = [
            stack.enter_context(decoders.server.call(model, rate, recognizer, patient=True))
            for _ in range(decoding.channels)
        ]
        feeding = asyncio.ensure_future(feed(calls, decoding))
        stack.push_async_callback(stop, [feeding])
        yield decoding, calls


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
