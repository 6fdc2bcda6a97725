"""Rules for a full server: which client gets a place, and which call loses one."""

import time
from collections.abc import Collection, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import NamedTuple, TypeAlias

from asrkit.errors import UserError, shown
from asrkit.serve.calls import Call

LOCAL = ("127.0.0.1", "::1")  # addresses of all clients of a proxy on this machine
RESERVED = 8  # an eighth of the places is reserved for clients with few calls


Network: TypeAlias = "IPv4Network | IPv6Network"


def network_of(text: str) -> Network:
    """Parse --trust-proxy: an address or a network.

    Raises:
        UserError: if `text` is neither.
    """
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise UserError(
            "--trust-proxy must be an address or a network, such as 127.0.0.1 or 10.0.0.0/8, "
            f"got {shown(text)}"
        ) from None


def client_of(address: str) -> str:
    """Return the client behind an address; an IPv6 client has a whole /64 network."""
    try:
        ip = ip_address(address)
    except ValueError:  # a proxy's name for a client
        return address[:50]
    if ip.version == 4 or ip.is_loopback:
        return address
    return str(ip.ipv4_mapped or ip_network((ip, 64), strict=False))


def is_shared(address: str, proxies: Collection[Network] = ()) -> bool:
    """Whether several clients may share an address: this machine's, a proxy's, or none."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:  # a Unix socket
        return not address
    return str(ip) in LOCAL or any(ip in each for each in proxies)


class Place(NamedTuple):
    """A call's place.

    Attributes:
        began: start of the call, `time.monotonic` seconds.
        address: address of the client.
    """

    began: float
    address: str


def held_by(address: str, places: Mapping[Call, Place]) -> int:
    """Return the number of places of a client's address."""
    return sum(place.address == address for place in places.values())


def is_free(address: str, places: Mapping[Call, Place], most: int) -> bool:
    """Whether a client gets a place without displacing another call.

    A client with half of all places does not get one of the last eighth.
    """
    free = most - len(places)
    greedy = not is_shared(address) and 2 * held_by(address, places) >= most
    return free > (most // RESERVED if greedy else 0)


def displaced(
    address: str, places: Mapping[Call, Place], idle_s: float
) -> tuple[Call, Place] | None:
    """Find a call without audio that may be ended for a call of another client, or None.

    This is a call that has waited for `idle_s`, or any call of a client that has at least two
    places more than the other client.
    """
    now = time.monotonic()
    own = held_by(address, places)
    for call, place in places.items():
        is_greedy = place.address != address and held_by(place.address, places) > own + 1
        if not call.has_audio and (is_greedy or now - place.began >= idle_s):
            return call, place
    return None
