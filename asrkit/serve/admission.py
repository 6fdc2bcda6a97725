"""Rules for a full server: which client gets a stream, and which call loses one.

Floods of connections and of requests are a proxy's job, see docs/security.md.
"""

import time
from collections.abc import Mapping
from contextvars import ContextVar
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from asrkit.serve.calls import Call

CLIENT: ContextVar[str] = ContextVar("client", default="")  # of the current connection
LOCAL = ("", "127.0.0.1", "::1")  # of all clients of a proxy on this machine
RESERVED = 8  # an eighth of the places is reserved for clients with few calls


def client_of(address: str) -> str:
    """Return the client behind an address; an IPv6 client has a whole /64 network."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:  # a proxy's name for a client
        return address[:50]
    if ip.version == 4 or ip.is_loopback:
        return str(ip)
    return str(ip.ipv4_mapped or ip_network((ip, 64), strict=False))


class Place(NamedTuple):
    """A call's place: its start, `time.monotonic` seconds, and its client."""

    began: float
    client: str


def is_free(client: str, places: Mapping[Call, Place], most: int) -> bool:
    """Whether a client gets a place without displacing another call.

    A client with half of all places does not get one of the last eighth.
    """
    count = sum(place.client == client for place in places.values())
    is_greedy = client not in LOCAL and 2 * count >= most
    return most - len(places) > (most // RESERVED if is_greedy else 0)


def idle_one(places: Mapping[Call, Place], idle_s: float) -> Call | None:
    """Find a call that has waited for `idle_s` without any audio, or None.

    It may be ended for another one.
    """
    latest = time.monotonic() - idle_s
    return next(
        (c for c, place in places.items() if place.began <= latest and not c.has_audio), None
    )
