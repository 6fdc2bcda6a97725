"""Places are shared between clients: nobody keeps others out without using what it takes."""

import time
from typing import Any

import pytest
from websockets.sync.client import connect

from asrkit.errors import UserError
from asrkit.runtime import Recognizer
from asrkit.serve.places import Place, client_of, displaced, is_free, is_shared, network_of
from asrkit.serve.server import Server
from tests.serve.running import serving

GREEDY, OTHER, PROXY = "192.0.2.1", "192.0.2.2", "127.0.0.1"


class Held:
    """A call that has a place."""

    def __init__(self, has_audio: bool) -> None:
        self.has_audio = has_audio


def calls(address: str, count: int, has_audio: bool, age: float = 0.0) -> dict[Any, Place]:
    began = time.monotonic() - age
    return {Held(has_audio): Place(began, address) for _ in range(count)}


@pytest.mark.parametrize(
    ("address", "count", "free"),
    [(GREEDY, 17, True), (GREEDY, 18, False), (OTHER, 18, True), (OTHER, 20, False),
     (PROXY, 19, True), (PROXY, 20, False)],
)  # fmt: skip
def test_the_last_eighth_is_for_those_who_have_few(address: str, count: int, free: bool) -> None:
    owner = PROXY if address == PROXY else GREEDY
    assert is_free(address, calls(owner, count, True), 20) == free


def test_a_server_with_few_places_keeps_none_back() -> None:
    assert is_free(GREEDY, calls(GREEDY, 3, True), 4)


def test_calls_without_audio_make_room_at_once_for_another_client() -> None:
    idle = calls(GREEDY, 20, False)
    found = displaced(OTHER, idle, 2.0)
    assert found is not None
    assert found[1].address == GREEDY
    assert displaced(GREEDY, idle, 2.0) is None  # one's own wait a time
    assert displaced(GREEDY, calls(GREEDY, 20, False, age=3.0), 2.0) is not None
    assert displaced(OTHER, calls(GREEDY, 20, True, age=3.0), 2.0) is None  # they have audio


def test_clients_with_one_call_each_do_not_push_each_other_out() -> None:
    every = {Held(False): Place(time.monotonic(), f"192.0.2.{i}") for i in range(20)}
    assert displaced("192.0.2.99", every, 2.0) is None


@pytest.mark.parametrize(
    ("proxies", "known"),
    [(["127.0.0.1"], "192.0.2.7"), (["192.0.2.0/24", "127.0.0.0/8"], "203.0.113.9"),
     ([], PROXY), (["192.0.2.7"], PROXY)],
)  # fmt: skip
def test_the_address_that_a_proxy_names_is_taken_from_a_trusted_proxy_alone(
    served: Recognizer, proxies: list[str], known: str
) -> None:
    server = Server({"m": served}, proxies=[network_of(each) for each in proxies])
    with serving(server) as address:
        # The client has written the first address, and proxies that come after it the others.
        headers = {"X-Forwarded-For": "198.51.100.1, 203.0.113.9, 192.0.2.7"}
        url = f"ws://{address}/v1/stream"
        with connect(url, additional_headers=headers) as client:
            client.send('{"type": "start"}')
            client.recv(timeout=10)
            assert [place.address for place in server.calls.values()] == [known]


@pytest.mark.parametrize("text", ["proxy.example", "10.0.0.1/33", "", "1.2.3"])
def test_what_is_no_address_of_a_proxy_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"--trust-proxy must be .* got '"):
        network_of(text)


def test_a_client_has_a_whole_network_of_ipv6() -> None:
    one, other, next_door = "2001:db8:0:1::1", "2001:db8:0:1:ffff::9", "2001:db8:0:2::1"
    assert client_of(one) == client_of(other) != client_of(next_door)
    assert client_of("::ffff:192.0.2.1") == client_of("192.0.2.1") == "192.0.2.1"
    assert [is_shared(client_of(each)) for each in ("::1", PROXY, "127.0.0.2", one)] == [
        True,
        True,
        False,
        False,
    ]
