"""Whose call has a place when places run short: those of calls that go on, and those of a store."""

import time
from collections import Counter
from collections.abc import Collection, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from asrkit.errors import UserError, shown
from asrkit.serve.calls import Call

OTHERS = "other processes"  # in place of the addresses of their clients
LOCAL = ("127.0.0.1", "::1")  # of all clients of a proxy on this machine
RESERVED = 8  # an eighth of the places is kept for clients that have few


Network: TypeAlias = "IPv4Network | IPv6Network"


def network_of(text: str) -> Network:
    """Return the addresses of a proxy: one, or a network.

    Raises:
        UserError: for text that is neither.
    """
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise UserError(
            "--trust-proxy must be an address or a network, such as 127.0.0.1 or 10.0.0.0/8, "
            f"got {shown(text)}"
        ) from None


def client_of(address: str) -> str:
    """Return the client behind an address, to whom a whole /64 belongs with IPv6."""
    try:
        ip = ip_address(address)
    except ValueError:  # a proxy's name for a client
        return address[:50]
    if ip.version == 4 or ip.is_loopback:
        return address
    return str(ip.ipv4_mapped or ip_network((ip, 64), strict=False))


def is_shared(address: str, proxies: Collection[Network] = ()) -> bool:
    """Whether many clients may have an address: this machine's usual one, a proxy's, or none."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:  # of a Unix socket
        return not address
    return str(ip) in LOCAL or any(ip in each for each in proxies)


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
    greedy = not is_shared(address) and 2 * held_by(address, places) >= most
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


class StoreShares:
    """The entries of a store by client, and which of them make room.

    When there are too many entries or bytes, the client that has the most loses those with the
    least audio: a flood of short calls does not push the calls of others out.

    Args:
        most: bytes of all entries.
        most_entries: number of them.
    """

    def __init__(self, most: int, most_entries: int) -> None:
        self._most, self._most_entries, self.size = most, most_entries, 0
        self._rows: dict[str, tuple[float, int, str]] = {}  # seconds, size, client; oldest first
        self._owners = Counter[str]()  # bytes of each client, its places counted as bytes too

    def add(self, name: str, size: int, owner: str, seconds: float) -> list[str]:
        """Note an entry that is put, and return the names of those that have to go.

        Args:
            name: of the entry.
            size: bytes.
            owner: address of the client.
            seconds: of audio.
        """
        is_new = name not in self._rows
        self.remove(name)
        self._note(name, seconds, size, owner)
        gone: list[str] = []
        while self.size > self._most or len(self._rows) > self._most_entries:
            (greediest, _), *_ = self._owners.most_common(1)
            if greediest != OTHERS:
                gone += self._evicted(greediest)
            elif is_new:
                self.remove(name)
                return [*gone, name]
            else:
                break
        return gone

    def _evicted(self, owner: str) -> list[str]:
        """Remove a sixteenth of what may be there, or more, of one client."""
        own = [(row[0], name) for name, row in self._rows.items() if row[2] == owner]
        size, count = 15 * self._most // 16, 15 * self._most_entries // 16
        gone = []
        for _, name in sorted(own, key=itemgetter(0)):  # stable: the oldest of those alike
            if self.size <= size and len(self._rows) <= count:
                break
            self.remove(name)
            gone.append(name)
        return gone

    def remove(self, name: str) -> None:
        """Note that an entry is gone."""
        if name in self._rows:
            _, size, owner = self._rows.pop(name)
            self.size -= size
            self._owners[owner] -= self._weight(size)
            if not self._owners[owner]:
                del self._owners[owner]

    def keep(self, sizes: Mapping[str, int]) -> None:
        """Note which entries there are, among them those of other processes."""
        for name in self._rows.keys() - sizes.keys():
            self.remove(name)
        for name in sizes.keys() - self._rows.keys():
            self._note(name, 0.0, sizes[name], OTHERS)

    def _note(self, name: str, seconds: float, size: int, owner: str) -> None:
        self._rows[name] = seconds, size, owner
        self.size += size
        self._owners[owner] += self._weight(size)

    def _weight(self, size: int) -> int:
        return size + self._most // self._most_entries
