"""Rules for a full server or store: which client gets a place, and which call loses one."""

import time
from collections import Counter
from collections.abc import Collection, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from asrkit.errors import UserError, shown
from asrkit.serve.calls import Call

OTHERS = "other processes"  # stands for the addresses of their clients
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


class StoreShares:
    """The entries of a store by client, and the choice of those to remove.

    If a store has too many entries or bytes, the client with the most bytes loses its entries with
    the least audio. So a flood of short calls does not remove the calls of other clients.

    Args:
        most: largest number of bytes of all entries.
        most_entries: largest number of entries.
    """

    def __init__(self, most: int, most_entries: int) -> None:
        self._most, self._most_entries, self.size = most, most_entries, 0
        self._rows: dict[str, tuple[float, int, str]] = {}  # seconds, size, client; oldest first
        self._owners = Counter[str]()  # bytes of each client; an entry itself counts as bytes, too

    def add(self, name: str, size: int, owner: str, seconds: float) -> list[str]:
        """Note an entry that is written, and return the names of the entries to remove.

        Args:
            name: name of the entry.
            size: number of bytes.
            owner: address of the client.
            seconds: length of the audio.
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
        """Remove entries of one client until a sixteenth of the store is free."""
        own = [(row[0], name) for name, row in self._rows.items() if row[2] == owner]
        size, count = 15 * self._most // 16, 15 * self._most_entries // 16
        gone = []
        for _, name in sorted(own, key=itemgetter(0)):  # stable: the oldest of equal ones first
            if self.size <= size and len(self._rows) <= count:
                break
            self.remove(name)
            gone.append(name)
        return gone

    def remove(self, name: str) -> None:
        """Note that an entry was removed."""
        if name in self._rows:
            _, size, owner = self._rows.pop(name)
            self.size -= size
            self._owners[owner] -= self._weight(size)
            if not self._owners[owner]:
                del self._owners[owner]

    def keep(self, sizes: Mapping[str, int]) -> None:
        """Note all entries of the store, including those of other processes."""
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
