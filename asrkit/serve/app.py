"""The server's addresses, and who may use them."""

import asyncio
import ctypes
import ipaddress
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from asrkit.errors import reason, shown
from asrkit.serve import fair
from asrkit.serve.logs import log
from asrkit.serve.places import client_of
from asrkit.serve.protocols import messages
from asrkit.serve.protocols.asrkit_stream import stream
from asrkit.serve.protocols.openai_realtime import realtime
from asrkit.serve.protocols.openai_transcriptions import refused, transcriptions
from asrkit.serve.protocols.openapi import described
from asrkit.serve.protocols.vosk import vosk
from asrkit.serve.server import RefusedError, Server
from asrkit.serve.uploads import Decoders

logger = logging.getLogger(__name__)

SWEEP_S = 10.0
NOT_OFFERED = {  # OpenAI's other address for audio
    "/v1/audio/translations": "translation is not offered: /v1/audio/transcriptions has the text in"
    " the language that is spoken"
}
PAGE = Path(__file__).with_name("page")
# By the token. The page itself holds nothing; the description has the names of the models.
PROTECTED = ("/v1/", "/vosk", "/metrics", "/openapi.json")


def app_of(server: Server) -> Starlette:
    """The ASGI application of a server; its workers end with it."""

    def with_server(handle: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        return partial(handle, server=server)

    decoders = Decoders(server)
    upload = partial(transcriptions, decoders=decoders)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.ensure_future(sweep(server))
        yield
        sweeping.cancel()
        await decoders.close()
        server.close()

    routes: list[BaseRoute] = [
        Route("/healthz", with_server(alive)),
        Route("/readyz", with_server(ready)),
        Route("/metrics", with_server(metrics)),
        Route("/schema.json", with_server(schema)),
        Route("/openapi.json", with_server(openapi)),
        Route("/v1/models", with_server(models)),
        Route("/v1/audio/transcriptions", with_server(upload), methods=["POST"]),
        WebSocketRoute("/v1/stream", with_server(stream)),
        WebSocketRoute("/v1/realtime", with_server(realtime)),
        WebSocketRoute("/vosk", with_server(vosk)),
    ]
    app = Starlette(
        routes=routes, lifespan=lifespan, exception_handlers={HTTPException: http_error}
    )
    app.router.default = elsewhere(app)  # no route: it would take the methods that others do not
    app.router.redirect_slashes = False  # a redirect would repeat what a client calls this host
    app.add_middleware(Guard, server=server)
    app.add_middleware(Log)
    app.add_middleware(Accounting)
    return app


async def sweep(server: Server) -> None:
    """Again and again: remove calls that nobody comes back to from the store, and give memory back
    that was freed."""
    while True:
        await asyncio.sleep(SWEEP_S)
        try:
            await server.store.sweep()
        except OSError as error:
            logger.warning("the store of calls could not be swept: %s", reason(error))
        await asyncio.to_thread(trim)


@cache
def glibc() -> Any:
    """The C library if it is glibc, else None."""
    try:
        library = ctypes.CDLL("libc.so.6")
        library.malloc_trim.argtypes = [ctypes.c_size_t]
    except (OSError, AttributeError):
        return None
    return library


def trim() -> None:
    """Give freed memory back to the system, which glibc does not do for what threads have freed.

    In a soak of half an hour the memory kept growing without it.
    """
    if (library := glibc()) is not None:
        library.malloc_trim(0)


async def alive(request: Request, server: Server) -> Response:
    return PlainTextResponse("ok\n")


async def ready(request: Request, server: Server) -> Response:
    """Whether calls are served as they should be; workers are warm before the port is open."""
    if server.store.is_down:
        return PlainTextResponse("the store of calls does not answer: calls are not kept\n", 503)
    return PlainTextResponse("ok\n")


async def metrics(request: Request, server: Server) -> Response:
    return Response(generate_latest(server.figures.registry), media_type=CONTENT_TYPE_LATEST)


async def models(request: Request, server: Server) -> Response:
    about = {"object": "model", "created": 0, "owned_by": "asrkit"}
    return JSONResponse(
        {"object": "list", "data": [{"id": each, **about} for each in server.models]}
    )


async def schema(request: Request, server: Server) -> Response:
    """Of the messages at /v1/stream."""
    return JSONResponse(messages.schema())


async def openapi(request: Request, server: Server) -> Response:
    return JSONResponse(described(server))


def elsewhere(app: Starlette) -> ASGIApp:
    """What answers at all other addresses: the page, but for those of a protocol."""
    page, missing = StaticFiles(directory=PAGE, html=True), app.router.not_found

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1/"):
            text = f"nothing is at {shown(scope['path'])}: /openapi.json lists the addresses"
            raise HTTPException(404, NOT_OFFERED.get(scope["path"], text))
        await (page if scope["type"] == "http" else missing)(scope, receive, send)

    return answer


async def http_error(request: Request, error: Exception) -> Response:
    """What is wrong with a request, by Starlette's routes and files."""
    assert isinstance(error, HTTPException)
    reason = HTTPStatus(error.status_code).name.lower()
    response = refused(RefusedError(error.status_code, reason, error.detail))
    response.headers.update(error.headers or {})
    return response


class Accounting:
    """Charges what is done for a connection to its share of the event loop."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        share = fair.CURRENT.get()
        if share is not None and scope.get("client"):  # behind a trusted proxy, whom it names
            share.address = client_of(scope["client"][0])
        work = self.app(scope, receive, send)
        await (fair.metered(work) if isinstance(work, Coroutine) else work)


class Log:
    """Writes down each request and connection when it is over: path, status or close code."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        started, status = time.monotonic(), None

        async def receive_and_note() -> Message:
            nonlocal status
            message = await receive()
            if message["type"] == "websocket.disconnect":
                status = status or message.get("code")
            return message

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.close"):
                status = message.get("status", message.get("code"))
            await send(message)

        try:
            await self.app(scope, receive_and_note, send_and_note)
        finally:
            seconds = round(time.monotonic() - started, 3)
            log(scope["type"], path=scope["path"][:100], status=status, seconds=seconds)


def host_name(header: str) -> str:
    """The name or address of a Host header, without its port."""
    name = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
    return name.strip("[]").rstrip(".").lower()


def is_local(host: str) -> bool:
    """Whether a host is an address or localhost, and not a name.

    A page of another site can have its own name point to this machine after it was loaded (DNS
    rebinding), so that the browser takes this server for that site. It cannot do so with these.
    """
    if not host or host == "localhost":  # HTTP/1.0 has no Host; browsers always send one
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Guard:
    """Lets requests through that have the token, and come from no other site's page.

    Without a token the host has to be an address, localhost, or a name that the server was given.

    The token is a bearer's, or `?token=`, for browsers, whose WebSockets have no headers.
    """

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self.app, self.server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or (why := self.why_not(scope)) is None:
            await self.app(scope, receive, send)
            return
        status, reason, message = why
        self.server.figures.refused.labels(reason).inc()
        if scope["type"] == "websocket":  # closed before it is accepted: the client gets a 403
            await WebSocket(scope, receive, send).close(1008, message)
        else:
            await refused(RefusedError(status, reason, message))(scope, receive, send)

    def why_not(self, scope: Scope) -> tuple[int, str, str] | None:
        """HTTP status, reason and message of a refusal."""
        headers = Headers(scope=scope)
        host, origin = host_name(headers.get("host", "")), headers.get("origin")
        if self.server.token is None and not (is_local(host) or host in self.server.hosts):
            return 421, "host", f"this server is not {shown(host)}; see --allow-host"
        own = {None, f"http://{headers.get('host')}", f"https://{headers.get('host')}"}
        if origin not in own.union(self.server.origins):
            return 403, "origin", "pages of other sites may not connect; see --origin"
        if not scope["path"].startswith(PROTECTED):
            return None
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            token = QueryParams(scope["query_string"]).get("token", "")
        if not self.server.admits(token):
            return 401, "token", "the token is missing or wrong"
        return None
