"""What the WebSocket protocols share: reading with limits, both directions at once, endings."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import numpy as np
from anyio import fail_after
from starlette.websockets import WebSocket, WebSocketDisconnect

from asrkit.errors import UserError, shown
from asrkit.serve import fair
from asrkit.serve.calls import Call, CallError
from asrkit.serve.server import RefusedError, Server

TRY_AGAIN_LATER, POLICY_VIOLATION = 1013, 1008  # close codes: IANA's registry for RFC 6455


async def next_message(websocket: WebSocket, server: Server, is_first: bool = False) -> str | bytes:
    """The client's next message; the first one has to come sooner.

    Raises:
        WebSocketDisconnect: if there is none any more.
        RefusedError: if none comes for too long.
    """
    limits = server.limits
    seconds = min(limits.header_s, limits.silence_s) if is_first else limits.silence_s
    try:
        with fail_after(seconds):
            message = await websocket.receive()
    except TimeoutError:
        text = f"no message for {seconds:g} s"
        raise RefusedError(408, "silence", text) from None
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1006))
    data = message.get("bytes")
    return message["text"] if data is None else data


def samples_of(past: bytes, data: bytes, dtype: np.dtype[Any]) -> tuple[np.ndarray, bytes]:
    """Samples of a packet, and the bytes of the last one that is not whole, for the next packet."""
    data = past + data if past else data
    whole = len(data) - len(data) % dtype.itemsize
    samples = np.frombuffer(data[:whole], dtype)
    return samples.astype(dtype.newbyteorder("=")), data[whole:]


def cut_off(past: bytes) -> str:
    """The warning about bytes at the end of a stream that are not a sample, or ""."""
    return f"the audio ends within a sample: {len(past)} bytes are not used" if past else ""


async def append_samples(call: Call, server: Server, samples: np.ndarray, sample_rate: int) -> None:
    """Samples into a call; waits while it is too far ahead.

    Raises:
        RefusedError: for a call that is too long.
    """
    if call.seconds + len(samples) / sample_rate > server.limits.call_s:
        text = f"a call may last {server.limits.call_s:g} s"
        raise RefusedError(413, "length", text)
    await call.accept(samples)


async def both_ways(*both: Coroutine[Any, Any, None]) -> None:
    """Read and write until the last of these, the writing, has ended, or until one raises."""
    tasks = [fair.task(each) for each in both]
    try:
        while not tasks[-1].done():
            running = [task for task in tasks if not task.done()]
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def telling(websocket: WebSocket, server: Server, form: Any) -> AsyncIterator[None]:
    """Accepts a connection and closes it; a client that cannot be served is told why.

    Args:
        websocket: of the client.
        server: whose figures count the calls that it ends.
        form: the text of the protocol's message for a reason and an explanation.
    """
    await websocket.accept()
    try:
        yield
        code, why = 1000, ""
    except WebSocketDisconnect:
        server.figures.dropped.labels("disconnect").inc()
        return
    except UserError as raised:
        cause = raised.__cause__ if isinstance(raised, CallError) else None
        error = cause if isinstance(cause, RefusedError) else raised
        reason = error.reason if isinstance(error, RefusedError) else "request"
        if reason != "streams":  # which are refused, and counted where
            server.figures.dropped.labels(reason).inc()
        code = TRY_AGAIN_LATER if reason == "streams" else POLICY_VIOLATION
        why = shown(str(error), 100)[1:-1]
        with suppress(WebSocketDisconnect, RuntimeError):
            await websocket.send_text(form(reason, str(error)))
    with suppress(WebSocketDisconnect, RuntimeError):  # the client may have gone by now
        await websocket.close(code, why)
