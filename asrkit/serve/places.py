"""The places of a server: which calls have one, and whose call gets one when they run short."""

import time
from collections.abc import Mapping
from typing import NamedTuple

from asrkit.serve.calls import Call

SHARED = ("", "127.0.0.1", "::1")  # addresses that may be those of a proxy, with many clients
RESERVED = 8  # an eighth of the places is kept for clients that have few


class Place(NamedTuple):
    """A call's place.

    Attributes:
        began: on the clock of `time.monotonic`.
        address: of the client.
    """

    began: float
    address: str


def held_by(address: str, places: Mapping[Call, Place]) -> int:
    """Number of places that a client's address has."""
    return sum(place.address == address for place in places.values())


def is_free(address: str, places: Mapping[Call, Place], most: int) -> bool:
    """Whether a client gets a place without taking another's.

    A client that has half of all does not get the last eighth.
    """
    free = most - len(places)
    greedy = address not in SHARED and 2 * held_by(address, places) >= most
    return free > (most // RESERVED if greedy else 0)


def displaced(
    address: str, places: Mapping[Call, Place], idle_s: float
) -> tuple[Call, Place] | None:
    """A call without audio that makes room for another client's; None if there is none.

    That is one which has waited for `idle_s`, or at once one of a client that has more of them.
    """
    now = time.monotonic()
    own = held_by(address, places)
    for call, place in places.items():
        is_greedy = place.address != address and held_by(place.address, places) > own + 1
        if not call.has_audio and (is_greedy or now - place.began >= idle_s):
            return call, place
    return None
