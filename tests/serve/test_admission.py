"""Streams are shared between clients: nobody keeps others out without using what it takes."""

import pytest
from websockets.sync.client import connect

from asrkit.commands.serve import arguments_of, check_proxies
from asrkit.errors import UserError
from asrkit.runtime import Recognizer
from asrkit.serve.admission import client_of, is_free
from asrkit.serve.server import Server
from tests.serve.running import connected, serving

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


@pytest.mark.parametrize("text", ["proxy.example", "10.0.0.1/33", "", "1.2.3"])
def test_what_is_no_address_of_a_proxy_is_refused(text: str) -> None:
    options = arguments_of().parse_args([f"--trust-proxy={text}"])
    with pytest.raises(UserError, match=r"--trust-proxy must be .* got '"):
        check_proxies(options)


def test_a_client_has_a_whole_network_of_ipv6() -> None:
    one, other, next_door = "2001:db8:0:1::1", "2001:db8:0:1:ffff::9", "2001:db8:0:2::1"
    assert client_of(one) == client_of(other) != client_of(next_door)
    assert client_of("::ffff:192.0.2.1") == client_of("192.0.2.1") == "192.0.2.1"


def test_no_message_is_compressed(address: str) -> None:
    with connected(f"ws://{address}/v1/stream", compression="deflate") as client:
        assert client.response is not None
        assert "Sec-WebSocket-Extensions" not in client.response.headers
