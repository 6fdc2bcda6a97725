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
from asrkit.runtime import Recognizer
from asrkit.serve.calls import Call, CallError
from asrkit.serve.server import Model, RefusedError, Server
from asrkit.serve.uploads import Decoding

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
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def left(request: Request) -> None:
    """Wait until the client disconnects; its request must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def rejection(error: UserError | HTTPException | OSError) -> UserError:
    """Return the error to report for a request that failed."""
    if isinstance(error, CallError) and isinstance(error.__cause__, UserError):
        return error.__cause__
    if isinstance(error, HTTPException):  # a body that cannot be read
        return UserError(error.detail)
    if isinstance(error, OSError):  # a full disk, too many processes
        text = f"the server cannot store a file now: {error.strerror}"
        return RefusedError(503, "system", text)
    return error


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


def begun(
    decoding: Decoding, server: Server, model: Model, recognizer: Recognizer, stack: AsyncExitStack
) -> list[Call]:
    """Return a call for each channel of a file; `stack` ends them."""
    rate = decoding.sample_rate
    return [
        stack.enter_context(server.call(model, rate, recognizer, patient=True))
        for _ in range(decoding.channels)
    ]


@asynccontextmanager
async def fed(calls: list[Call], decoding: Decoding) -> AsyncIterator[None]:
    """A context manager that appends a file's audio to its calls, as fast as the network runs."""
    feeding = asyncio.ensure_future(feed(calls, decoding))
    try:
        yield
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


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
