"""Shared code of the WebSocket protocols: reading with limits, both directions, errors."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from anyio import fail_after, move_on_after
from starlette.datastructures import Headers, QueryParams
from starlette.types import Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

from asrkit.errors import UserError, shown
from asrkit.serve.server import RefusedError, Server

TRY_AGAIN_LATER, POLICY_VIOLATION = 1013, 1008  # close codes: IANA's registry for RFC 6455
SEND_S = 60.0  # time in which a client must take a message
CLOSE_S = 0.25  # time for a client to close after the last message
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
            await asyncio.sleep(0)  # `receive` does not let others run while messages wait
            message = await websocket.receive()
    except TimeoutError:
        text = f"no message for {seconds:g} s"
        raise RefusedError(408, "silence", text) from None
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1006))
    data = message.get("bytes")
    return message["text"] if data is None else data


async def send(websocket: WebSocket, message: dict[str, Any]) -> None:
    """Send a JSON object, like `send_text`."""
    await send_text(websocket, json.dumps(message, ensure_ascii=False))


async def send_text(websocket: WebSocket, text: str) -> None:
    """Send a text; several tasks of a connection may send.

    Raises:
        WebSocketDisconnect: if the connection is closed, which another task may have noticed, or if
            the client does not read.
    """
    try:
        with fail_after(SEND_S):
            await websocket.send_text(text)
    except (RuntimeError, TimeoutError) as error:
        raise WebSocketDisconnect(1006) from error


async def closed(websocket: WebSocket) -> bool:
    """Wait a moment for the client's close; return whether its code is 1000.

    A client that closes so has all messages.
    """
    with move_on_after(CLOSE_S), suppress(RuntimeError):  # another task has noticed the close
        while (message := await websocket.receive())["type"] != "websocket.disconnect":
            pass
        return bool(message.get("code") == 1000)
    return False


async def both_ways(*both: "Coroutine[Any, Any, None] | asyncio.Task[None]") -> None:
    """Run coroutines until the last one, which writes, has ended, or until one raises."""
    tasks = [asyncio.ensure_future(each) for each in both]
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
    tasks = [*map(asyncio.ensure_future, others)]

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
