"""Who may use the server, and who gets a stream of a full one."""

import asyncio
from contextlib import nullcontext
from typing import Any

import httpx
import pytest
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from asrkit.runtime import Recognizer
from asrkit.serve import app
from asrkit.serve.admission import client_of, is_free
from asrkit.serve.app import discard, host_name, is_local
from asrkit.serve.server import Server
from tests.serve.running import connected, serving


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("127.0.0.1:8000", True), ("localhost", True), ("LOCALHOST:8000", True), ("[::1]:80", True),
        ("localhost.:80", True), ("192.168.1.5:8000", True), ("", True),
        ("evil.example", False), ("evil.example:8000", False), ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:80", False),
    ],
)  # fmt: skip
def test_addresses_and_localhost_are_not_names(header: str, allowed: bool) -> None:
    assert is_local(host_name(header)) == allowed


def test_a_name_that_points_here_is_refused_without_a_token(served: Recognizer) -> None:
    evil = {"Host": "evil.example", "Origin": "http://evil.example"}
    with serving(Server({"m": served}, hosts=("asr.example",))) as address:
        url = f"http://{address}"
        assert httpx.get(f"{url}/v1/models").status_code == 200
        refused = httpx.get(f"{url}/v1/models", headers=evil)
        assert refused.status_code == 421
        assert "'evil.example' is not a name of this server; see --allow-host" in refused.text
        assert httpx.get(f"{url}/v1/models", headers={"Host": "ASR.example:80"}).status_code == 200
        with pytest.raises(InvalidStatus):
            connect(f"ws://{address}/v1/stream", additional_headers=evil, origin=evil["Origin"])
    with serving(Server({"m": served}, token="secret")) as address:  # which the page does not know
        headers = {"Host": "asr.example", "Authorization": "Bearer secret"}
        assert httpx.get(f"http://{address}/v1/models", headers=headers).status_code == 200


PAGE = {"index.html", "page.css", "page.js", "asrkit.js", "worklet.js", "favicon.svg"}
FILES = {"/", *(f"/{name}" for name in PAGE)}


@pytest.mark.parametrize(
    ("kind", "public"), [("http", FILES | {"/healthz", "/readyz"}), ("websocket", {"/twilio"})]
)
def test_the_addresses_without_a_token(kind: str, public: set[str]) -> None:
    server = Server({}, token="secret")
    guard = app.Guard(app.app_of(server), server)
    scope = {"type": kind, "headers": [], "query_string": b""}
    routes = app.app_of(server).routes
    paths = {"/new", *(each.path for each in routes if isinstance(each, Route | WebSocketRoute))}
    assert paths >= public
    assert {each for each in paths if not guard.why_not(scope | {"path": each})} == public


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("HEAD", "/v1/models", 200, ""), ("POST", "/v1/models", 405, "GET, HEAD"),
        ("OPTIONS", "/v1/audio/transcriptions", 405, "POST"),
        ("GET", "/v1/audio/transcriptions", 405, "POST"), ("GET", "/healthz/", 404, ""),
        ("HEAD", "/", 200, ""), ("GET", "/page.js", 200, ""), ("POST", "/", 405, "GET, HEAD"),
    ],
)  # fmt: skip
def test_methods(address: str, method: str, path: str, status: int, allowed: str) -> None:
    answer = httpx.request(method, f"http://{address}{path}")
    assert answer.status_code == status
    assert {*answer.headers.get("allow", "").split(", ")} == {*allowed.split(", ")}


FRIEND, EVIL = "https://friend.example", "https://evil.example"


@pytest.mark.parametrize(
    ("origins", "origin", "expected"),
    [
        ((FRIEND,), FRIEND, [(200, FRIEND), (200, FRIEND), (401, FRIEND)]),
        ((FRIEND,), EVIL, [(400, None), (403, None), (403, None)]),
        (("*",), EVIL, [(200, "*"), (200, "*"), (401, "*")]),
    ],
)
def test_pages_of_named_origins_use_http(
    served: Recognizer, origins: tuple[str, ...], origin: str, expected: list[Any]
) -> None:
    """By a preflight, a request with its token, one without, and a WebSocket."""
    token = {"Authorization": "Bearer secret", "Origin": origin}
    preflight = {
        "Access-Control-Request-Method": "GET", "Origin": origin,
        "Access-Control-Request-Headers": "authorization,x-stainless-os",
    }  # fmt: skip
    with serving(Server({"m": served}, token="secret", origins=origins)) as address:
        url = f"http://{address}/v1/models"
        requests = ("OPTIONS", preflight), ("GET", token), ("GET", {"Origin": origin})
        answers = [httpx.request(kind, url, headers=headers) for kind, headers in requests]
        allowed = "access-control-allow-origin"
        assert [(each.status_code, each.headers.get(allowed)) for each in answers] == expected
        refusal = nullcontext() if expected[1][0] == 200 else pytest.raises(InvalidStatus)
        with refusal, connect(f"ws://{address}/v1/stream", additional_headers=token):
            pass


@pytest.mark.parametrize(
    ("offered", "chosen", "token"),
    [
        (["token", "KEY"], "token", "KEY"), (["bearer", "KEY"], "bearer", "KEY"),
        (["other"], None, ""), (["realtime", "openai-beta.v1"], "realtime", ""),
        (["realtime", "openai-insecure-api-key.KEY", "openai-beta.v1"], "realtime", "KEY"),
    ],
)  # fmt: skip
def test_subprotocols_carry_the_token(offered: list[str], chosen: str | None, token: str) -> None:
    assert app.subprotocol_of({"subprotocols": offered}) == (chosen, token)


def test_the_chosen_subprotocol_never_has_the_token(served: Recognizer) -> None:
    """Without one a browser closes."""
    with serving(Server({"m": served}, token="secret")) as address:
        url = f"ws://{address}/v1/stream"
        names: Any = ["realtime", "openai-insecure-api-key.secret"]
        with connect(url, subprotocols=names) as client:
            assert client.subprotocol == "realtime"
            assert "secret" not in str(client.response and client.response.headers)
        with pytest.raises(InvalidStatus):
            connect(url, subprotocols=names[:1])


@pytest.mark.parametrize(
    ("header", "query", "token"),
    [("Bearer a", "token=b", "a"), ("Token a", "", "a"), ("Basic a", "token=b", "b"), ("", "", "")],
)
def test_the_places_of_a_token(header: str, query: str, token: str) -> None:
    headers = [(b"authorization", header.encode())] if header else []
    scope = {"type": "http", "headers": headers, "query_string": query.encode()}
    assert app.token_of(scope) == token


GREEDY, OTHER, PROXY = "192.0.2.1", "192.0.2.2", "127.0.0.1"


@pytest.mark.parametrize(
    ("client", "count", "free"),
    [(GREEDY, 17, True), (GREEDY, 18, False), (OTHER, 18, True), (OTHER, 20, False),
     (PROXY, 19, True), (PROXY, 20, False)],
)  # fmt: skip
def test_the_last_eighth_is_for_those_who_have_few(client: str, count: int, free: bool) -> None:
    owner = PROXY if client == PROXY else GREEDY
    assert is_free(client, [owner] * count, 20) == free


@pytest.mark.parametrize(
    ("proxies", "known"),
    [(("127.0.0.1",), "192.0.2.7"), (("192.0.2.0/24", "127.0.0.0/8"), "203.0.113.9"),
     ((), PROXY), (("192.0.2.7",), PROXY)],
)  # fmt: skip
def test_the_address_that_a_proxy_names_is_taken_from_a_trusted_proxy_alone(
    served: Recognizer, proxies: tuple[str, ...], known: str
) -> None:
    server = Server({"m": served})
    with serving(server, proxies=proxies) as address:
        # The client has written the first address, and proxies that come after it the others.
        headers = {"X-Forwarded-For": "198.51.100.1, 203.0.113.9, 192.0.2.7"}
        with connect(f"ws://{address}/v1/stream", additional_headers=headers) as client:
            client.send('{"type": "start"}')
            client.recv(timeout=10)
            assert [*server.calls.values()] == [known]


def test_a_client_has_a_whole_network_of_ipv6() -> None:
    one, other, next_door = "2001:db8:0:1::1", "2001:db8:0:1:ffff::9", "2001:db8:0:2::1"
    assert client_of(one) == client_of(other) != client_of(next_door)
    assert client_of("::ffff:192.0.2.1") == client_of("192.0.2.1") == "192.0.2.1"


def test_no_message_is_compressed(address: str) -> None:
    with connected(f"ws://{address}/v1/stream", compression="deflate") as client:
        assert client.response is not None
        assert "Sec-WebSocket-Extensions" not in client.response.headers


@pytest.mark.parametrize(("blocks", "read"), [(3, 3), (100, 11)])
def test_the_body_of_a_rejected_request_is_read_to_a_mebibyte(blocks: int, read: int) -> None:
    """Else nginx, which still sends it when the connection closes, answers 502 to its client."""
    size, received = 100_000, list[int]()

    async def receive() -> dict:
        received.append(size)
        return {"body": bytes(size), "more_body": len(received) < blocks}

    asyncio.run(discard(receive))
    assert len(received) == read
