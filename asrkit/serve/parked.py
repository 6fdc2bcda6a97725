"""A call as bytes: what its client asked for, and all that it has come to."""

import hashlib
import hmac
import json

from asrkit.errors import UserError
from asrkit.runtime.saved import tag
from asrkit.serve import messages
from asrkit.serve.calls import SavedCall
from asrkit.serve.messages import Start

TAG = hashlib.sha256().digest_size


def name_of(call: str, token: str) -> str:
    """The name of a call in a store, which only those can tell who have its token."""
    return hashlib.sha256(f"{call}:{token}".encode()).hexdigest()


def to_bytes(start: Start, saved: SavedCall, key: bytes) -> bytes:
    """A call, authenticated with the key."""
    head = {"start": start.model_dump_json(), "received": saved.received, "commits": saved.commits}
    body = json.dumps(head).encode() + b"\n" + saved.session
    return tag(body, key) + body


def from_bytes(data: bytes, key: bytes) -> tuple[Start, SavedCall]:
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
    return start, SavedCall(session, values["received"], values["commits"])
