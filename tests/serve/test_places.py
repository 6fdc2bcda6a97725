"""Places are shared between clients: nobody keeps others out without using what it takes."""

import time
from typing import Any

import pytest

from asrkit.serve.places import Place, displaced, is_free

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
