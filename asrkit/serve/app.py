"""The server's addresses, and who may use them."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.datastructures import Headers, QueryParams
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from asrkit.errors import shown
from asrkit.serve.admission import CLIENT, client_of
from asrkit.serve.converse import Conversation, Dialect, WebSocketLine, converse
from asrkit.serve.dialects.asrkit_stream import AsrkitStream
from asrkit.serve.dialects.deepgram import DEEPGRAM
from asrkit.serve.dialects.deepgram_live import Deepgram
from asrkit.serve.dialects.files import transcribe
from asrkit.serve.dialects.openai_files import OPENAI
from asrkit.serve.dialects.openai_realtime import Realtime
from asrkit.serve.dialects.twilio import Twilio
from asrkit.serve.dialects.vosk import Vosk
from asrkit.serve.resumable import ResumableConversation
from asrkit.serve.server import Limits, RefusedError, Server
from asrkit.serve.uploads import Decoders

SCHEMES = ("bearer", "token")  # Deepgram's clients write Token
OPENAI_KEY = "openai-insecure-api-key."
PAGE = Path(__file__).with_name("page")
# All other paths need the token. Twilio sends it in its first message, which its protocol checks.
PUBLIC = {
    "http": {"/healthz", "/readyz", "/", *(f"/{p.name}" for p in PAGE.iterdir())},
    "websocket": {"/twilio"},
}


def app_of(server: Server, *beside: AbstractAsyncContextManager[None]) -> Starlette:
    """The ASGI application of a server; the server's workers end with the application.

    Args:
        server: server of the calls.
        beside: context managers that are entered while the application runs, such as other ports.
    """

    decoders = Decoders(server)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.ensure_future(server.store.keep_swept())
        async with AsyncExitStack() as stack:
            for each in beside:
                await stack.enter_async_context(each)
            yield
        sweeping.cancel()
        server.close()

    routes: list[BaseRoute] = [
        *(Route(path, partial(each, server=server)) for path, each in ANSWERS.items()),
        *(
            Route(path, partial(transcribe, service=each, decoders=decoders), methods=["POST"])
            for path, each in FILES.items()
        ),
        *(WebSocketRoute(path, partial(talk, path, server=server)) for path in DIALECTS),
        *page_routes(),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.default = elsewhere  # a route would also accept methods that others reject
    app.router.redirect_slashes = False  # a redirect would repeat the client's Host header
    app.add_middleware(Guard, server=server)
    if server.origins:  # outside Guard: preflights have no token, and pages read its rejections
        app.add_middleware(
            CORSMiddleware, allow_origins=server.origins, allow_methods=["GET", "POST"],
            allow_headers=["*"], expose_headers=["*"],
        )  # fmt: skip
    return app


def config_of(
    app: Any, limits: Limits, proxies: Sequence[str] = (), **options: Any
) -> uvicorn.Config:
    """Return uvicorn's configuration for a server's application.

    A client without messages ends by the limit `silence_s`: uvicorn would also end those whose
    pong waits behind audio that is read later.

    Args:
        app: application, as `app_of` returns it, or a factory of it.
        limits: limits of the server.
        proxies: addresses or networks of proxies whose X-Forwarded-For names the client.
        options: further options of uvicorn.
    """
    return uvicorn.Config(
        app, ws="websockets-sansio", log_config=None, log_level="warning",
        limit_concurrency=limits.streams + limits.connections,
        ws_max_size=limits.message_kb * 1024, ws_per_message_deflate=False, ws_ping_timeout=None,
        proxy_headers=bool(proxies), forwarded_allow_ips=[*proxies], **options,
    )  # fmt: skip


DIALECTS: dict[str, Callable[[WebSocket, Server], Dialect]] = {
    "/v1/listen": lambda socket, server: Deepgram(socket.query_params),
    "/v1/stream": lambda socket, server: AsrkitStream(),
    "/v1/realtime": lambda socket, server: Realtime(
        socket.query_params, server.model().recognizer.decoding.endpointer
    ),
    "/vosk": lambda socket, server: Vosk(),
    "/": lambda socket, server: Vosk(),  # Vosk's own server has no path
    "/twilio": lambda socket, server: Twilio(token_of(socket.scope)),
}
FILES = {"/v1/audio/transcriptions": OPENAI, "/v1/listen": DEEPGRAM}


async def talk(path: str, websocket: WebSocket, server: Server) -> None:
    """Serve a WebSocket in the dialect of its path."""
    await websocket.accept(subprotocol_of(websocket.scope)[0])
    dialect, line = DIALECTS[path](websocket, server), WebSocketLine(websocket)
    if isinstance(dialect, AsrkitStream):
        await converse(ResumableConversation(line, server, dialect))
    else:
        await converse(Conversation(line, server, dialect))


async def alive(request: Request, server: Server) -> Response:
    return PlainTextResponse("ok\n")


async def ready(request: Request, server: Server) -> Response:
    """Answer 200 while calls are served and saved; workers are warm before the port opens."""
    if server.store.is_down:
        return PlainTextResponse("the store does not answer: calls are not saved\n", 503)
    return PlainTextResponse("ok\n")


async def metrics(request: Request, server: Server) -> Response:
    return Response(server.figures.exposition(), media_type=CONTENT_TYPE_LATEST)


async def models(request: Request, server: Server) -> Response:
    """Answer with the models in OpenAI's form, and the words that they are limited to."""
    about = {"object": "model", "created": 0, "owned_by": "asrkit"}
    data = [
        {"id": name, **about, "words": model.recognizer.words}
        for name, model in server.models.items()
    ]
    return JSONResponse({"object": "list", "data": data})


ANSWERS = {
    "/healthz": alive, "/readyz": ready, "/metrics": metrics, "/v1/models": models,
}  # fmt: skip


def page_routes() -> list[Route]:
    """Return the routes of the page's files."""
    files = {"/": PAGE / "index.html"} | {f"/{file.name}": file for file in PAGE.iterdir()}
    return [Route(path, partial(page_file, file=file)) for path, file in files.items()]


async def page_file(request: Request, file: Path) -> Response:
    return FileResponse(file)


async def elsewhere(scope: Scope, receive: Receive, send: Send) -> None:
    """The application for all other addresses: status 404."""
    what = "no WebSocket" if scope["type"] == "websocket" else "nothing"
    text = f"{what} is at {shown(scope['path'])}: see docs/serve.md for the addresses"
    await OPENAI.refused(RefusedError(404, "not_found", text))(scope, receive, send)


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


def host_name(header: str) -> str:
    """The name or address of a Host header, without its port."""
    name = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
    return name.strip("[]").rstrip(".").lower()


def is_local(host: str) -> bool:
    """Whether a host is an address or localhost, and not a name.

    A page of another site can point its own host name to this machine after the page was loaded
    (DNS rebinding). The browser then takes this server for that site. An IP address or localhost
    cannot be pointed elsewhere.
    """
    with suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return host in ("", "localhost")  # HTTP/1.0 has no Host; browsers always send one


class Guard:
    """Notes the client; passes on requests with the token, except those of other sites' pages.

    On a server without a token, the host must be an IP address, localhost, or a name from
    --allow-host. Browsers' WebSockets, which set no headers, have other ways for the token, see
    `token_of`.
    """

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self.app, self.server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("client"):
            CLIENT.set(client_of(scope["client"][0]))
        if scope["type"] not in ("http", "websocket") or (error := self.why_not(scope)) is None:
            await self.app(scope, receive, send)
            return
        self.server.figures.refused.labels(error.reason).inc()
        if scope["type"] == "http":
            await discard(receive)
        await FILES.get(scope["path"], OPENAI).refused(error)(scope, receive, send)

    def why_not(self, scope: Scope) -> RefusedError | None:
        """Return the error of a request that is rejected; None to accept the request."""
        headers = Headers(scope=scope)
        host, origin = host_name(headers.get("host", "")), headers.get("origin")
        if self.server.token is None and not (is_local(host) or host in self.server.hosts):
            text = f"{shown(host)} is not a name of this server; see --allow-host"
            return RefusedError(421, "host", text)
        own = {None, f"http://{headers.get('host')}", f"https://{headers.get('host')}"}
        if "*" not in self.server.origins and origin not in own.union(self.server.origins):
            return RefusedError(403, "origin", "pages of other sites may not connect; see --origin")
        is_public = scope["path"] in PUBLIC[scope["type"]]
        if not is_public and not self.server.admits(token_of(scope)):
            return RefusedError(401, "token", "the token is missing or wrong")
        return None


async def discard(receive: Receive) -> None:
    """Read the body of a rejected request, a mebibyte in a second at most.

    nginx, which still sends the body when the connection closes, would answer 502 in our place.
    """
    size = 0
    with anyio.move_on_after(1.0):
        while size < 1 << 20 and (message := await receive()).get("more_body"):
            size += len(message["body"])
