"""Shared code of the WebSocket protocols: reading with limits, both directions, errors."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from anyio import fail_after
from starlette.datastructures import Headers, QueryParams
from starlette.types import Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

from asrkit.errors import UserError, shown
from asrkit.serve import fair
from asrkit.serve.connections import ANSWERED, JOIN
from asrkit.serve.server import RefusedError, Server

TRY_AGAIN_LATER, POLICY_VIOLATION = 1013, 1008  # close codes: IANA's registry for RFC 6455
SCHEMES = ("bearer", "token")  # Deepgram's clients write Token
OPENAI_KEY = "openai-insecure-api-key."


def token_of(scope: Scope) -> str:
    """Return the token of a request: a bearer token, of a subprotocol, or `?token=`; else ""."""
    kind, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
    if kind.lower() in SCHEMES:
        return token
    return subprotocol_of(scope)[1] or QueryParams(scope["query_string"]).get("token", "")


def subprotocol_of(scope: Scope) -> tuple[str | None, str]:
    """Return the subprotocol to choose, and the token that the others carry, or "".

    A browser's WebSocket sets no headers. So Deepgram's clients offer `token, KEY` or
    `bearer, KEY`, and OpenAI's `realtime, openai-insecure-api-key.KEY`.
    """
    offered = scope.get("subprotocols", [])
    if len(offered) == 2 and offered[0].lower() in SCHEMES:
        return offered[0], offered[1]
    if "realtime" in offered:
        keys = [each for each in offered if each.startswith(OPENAI_KEY)]
        return "realtime", keys[0].removeprefix(OPENAI_KEY) if keys else ""
    return None, ""


async def next_message(websocket: WebSocket, server: Server, is_first: bool = False) -> str | bytes:
    """Receive the client's next message; the time limit of the first message is shorter.

    Raises:
        WebSocketDisconnect: if the client has disconnected.
        RefusedError: if no message arrives in time.
    """
    limits = server.limits
    seconds = min(limits.header_s, limits.silence_s) if is_first else limits.silence_s
    try:
        with fail_after(seconds):
            message = await websocket.receive()
    except TimeoutError:
        if join(websocket, 0):
            return await next_message(websocket, server)
        text = f"no message for {seconds:g} s"
        raise RefusedError(408, "silence", text) from None
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1006))
    data = message.get("bytes")
    return message["text"] if data is None else data


def join(websocket: WebSocket, size: int) -> bool:
    """Have binary messages joined up to `size` bytes; return whether some have arrived already.

    They are now the next message if they have `size` bytes. A text message ends them, too. Without
    `connections.WebSocket`, for example behind another ASGI server, messages are not joined.
    """
    found = websocket.scope.get("extensions", {}).get(JOIN)
    return found is not None and found(size)


async def send(websocket: WebSocket, message: dict[str, Any]) -> None:
    """Send a JSON object, like `send_text`."""
    await send_text(websocket, json.dumps(message, ensure_ascii=False))


async def send_text(websocket: WebSocket, text: str) -> None:
    """Send a text; several tasks of a connection may send.

    Raises:
        WebSocketDisconnect: if the connection is closed, which another task may have noticed.
    """
    try:
        await websocket.send_text(text)
    except RuntimeError as error:
        raise WebSocketDisconnect(1006) from error


async def closed(websocket: WebSocket) -> bool:
    """Close a connection and wait; return whether the client answers, and so has all messages.

    Without `connections.WebSocket` this is not known, and the connection is not closed here.
    """
    answered = websocket.scope.get("extensions", {}).get(ANSWERED)
    if answered is None:
        return False
    with suppress(WebSocketDisconnect, RuntimeError):  # the client may have disconnected
        await websocket.close()
    return bool(await answered)


async def both_ways(*both: "Coroutine[Any, Any, None] | asyncio.Task[None]") -> None:
    """Run coroutines until the last one, which writes, has ended, or until one raises."""
    tasks = [each if isinstance(each, asyncio.Task) else fair.task(each) for each in both]
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


async def all_ways(
    read: Coroutine[Any, Any, None],
    writers: Sequence[Coroutine[Any, Any, None]],
    end: Coroutine[Any, Any, None],
    *beside: Coroutine[Any, Any, None],
) -> None:
    """Run coroutines that read and write, and `end` after the last writer, or until one raises.

    Each task of a connection costs processor time: a writer alone and `end` share one.

    Args:
        read: reads from the client.
        writers: write to the client.
        end: runs after all writers.
        beside: run meanwhile, for example until they raise.
    """
    *others, last = writers
    tasks = [*map(fair.task, others)]

    async def write() -> None:
        await last
        await asyncio.gather(*tasks)
        await end

    try:
        await both_ways(*beside, read, *tasks, write())
    finally:
        end.close()  # if it has not begun


@asynccontextmanager
async def telling(websocket: WebSocket, server: Server, form: Any) -> AsyncIterator[None]:
    """A context manager that accepts a connection, sends an error if one is raised, and closes.

    Args:
        websocket: connection to the client.
        server: server, whose metrics count the calls that end early.
        form: function that makes the protocol's error message of a reason and an explanation.
    """
    await websocket.accept(subprotocol_of(websocket.scope)[0])
    try:
        yield
        code, why = 1000, ""
    except WebSocketDisconnect:
        server.figures.dropped.labels("disconnect").inc()
        return
    except UserError as raised:
        reason, text = server.note_dropped(raised)
        code = TRY_AGAIN_LATER if reason == "streams" else POLICY_VIOLATION
        why = shown(text, 100)[1:-1]
        with suppress(WebSocketDisconnect):
            await send_text(websocket, form(reason, text))
    with suppress(WebSocketDisconnect, RuntimeError):  # the client may have disconnected
        await websocket.close(code, why)
