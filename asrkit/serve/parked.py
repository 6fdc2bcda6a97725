"""A call as bytes: what its client asked for, and all that it has come to."""

import base64
import hashlib
import hmac
import json
from typing import NamedTuple

from asrkit.errors import UserError
from asrkit.runtime.saved import tag
from asrkit.serve import messages
from asrkit.serve.calls import SavedCall
from asrkit.serve.messages import Start

TAG = hashlib.sha256().digest_size


def name_of(call: str, token: str) -> str:
    """The name of a call in a store, which only those can tell who have its token."""
    return hashlib.sha256(f"{call}:{token}".encode()).hexdigest()


class Parked(NamedTuple):
    """A call between two connections."""

    start: Start
    saved: SavedCall
    packets: tuple[bytes, ...] = ()  # of Opus, before what comes next


def to_bytes(call: Parked, key: bytes) -> bytes:
    """A call, authenticated with the key."""
    head = {
        "start": call.start.model_dump_json(),
        "received": call.saved.received,
        "commits": call.saved.commits,
        "packets": [base64.b64encode(packet).decode() for packet in call.packets],
    }
    body = json.dumps(head).encode() + b"\n" + call.saved.session
    return tag(body, key) + body


def from_bytes(data: bytes, key: bytes) -> Parked:
    """What `to_bytes` has written.

    Raises:
        UserError: for anything else, and for what was written with another key.
    """
    body = data[TAG:]
    if not hmac.compare_digest(data[:TAG], tag(body, key)):
        raise UserError("the call was kept by a server with another key")
    head, _, session = body.partition(b"\n")
    values = json.loads(head)
    start = messages.parsed(values["start"])
    assert isinstance(start, Start)
    saved = SavedCall(session, values["received"], values["commits"])
    return Parked(start, saved, tuple(map(base64.b64decode, values["packets"])))
