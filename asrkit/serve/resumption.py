"""A call as bytes: what its client asked for, and all that it has come to."""

import base64
import hashlib
import hmac
import json
from typing import NamedTuple

from asrkit.errors import UserError
from asrkit.runtime.serialization import tag
from asrkit.serve.calls import SavedCall
from asrkit.serve.protocols import messages
from asrkit.serve.protocols.messages import Start

TAG = hashlib.sha256().digest_size


def name_of(call: str, token: str) -> str:
    """The name of a call in a store, which only those can tell who have its token."""
    return hashlib.sha256(f"{call}:{token}".encode()).hexdigest()


class Version(NamedTuple):
    """Which of the states of a call it is; the later one is larger."""

    generation: int  # of the connection that wrote it
    number: int  # of the state, among those of the connection


class SuspendedCall(NamedTuple):
    """A call between two connections."""

    start: Start
    saved: SavedCall | None = None  # None: its client still has all that it has sent
    packets: tuple[bytes, ...] = ()  # of Opus, before what comes next

    @property
    def received(self) -> int:
        """Samples that need not be sent again."""
        return self.saved.received if self.saved else 0

    @property
    def commits(self) -> int:
        """Commits that need not be sent again."""
        return self.saved.commits if self.saved else 0


def to_bytes(call: SuspendedCall, key: bytes, name: str, version: Version) -> bytes:
    """A call, authenticated with the key as this version of the call of this name."""
    saved = call.saved or SavedCall(b"", 0, 0)
    head = {
        "start": call.start.model_dump_json(),
        "received": saved.received,
        "commits": saved.commits,
        "packets": [base64.b64encode(packet).decode() for packet in call.packets],
        "version": version,
    }
    body = json.dumps(head).encode() + b"\n" + saved.session
    return tag(name.encode() + body, key) + body


def from_bytes(data: bytes, key: bytes, name: str) -> tuple[SuspendedCall, Version]:
    """What `to_bytes` has written of the call of this name.

    Raises:
        UserError: for anything else, and for what was written with another key.
    """
    body = data[TAG:]
    if not hmac.compare_digest(data[:TAG], tag(name.encode() + body, key)):
        raise UserError("the call was kept by a server with another key, or is another call")
    head, _, session = body.partition(b"\n")
    values = json.loads(head)
    start = messages.parsed(values["start"])
    assert isinstance(start, Start)
    saved = SavedCall(session, values["received"], values["commits"]) if session else None
    packets = tuple(map(base64.b64decode, values["packets"]))
    return SuspendedCall(start, saved, packets), Version(*values["version"])
