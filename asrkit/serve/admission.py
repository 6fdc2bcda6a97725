"""The rule for a full server: which client gets a stream.

Floods of connections and of requests are a proxy's job, see docs/security.md.
"""

from collections.abc import Collection
from contextvars import ContextVar
from ipaddress import ip_address, ip_network

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


def is_free(client: str, clients: Collection[str], most: int) -> bool:
    """Whether a client gets a place.

    A client with half of all places does not get one of the last eighth.

    Args:
        client: address of the client.
        clients: client of each call now.
        most: number of all places.
    """
    is_greedy = client not in LOCAL and 2 * sum(each == client for each in clients) >= most
    return most - len(clients) > (most // RESERVED if is_greedy else 0)
