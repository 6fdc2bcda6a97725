"""A call as bytes: its client's settings and its state."""

import hashlib
import hmac
import json
from itertools import accumulate, pairwise
from typing import NamedTuple

from asrkit.errors import UserError
from asrkit.serve.calls import SavedCall
from asrkit.serve.dialects import messages
from asrkit.serve.dialects.messages import Start

TAG = hashlib.sha256().digest_size


def name_of(call: str, token: str) -> str:
    """Return the name of a call in a store; only its id and token together determine it."""
    return hashlib.sha256(f"{call}:{token}".encode()).hexdigest()


class SuspendedCall(NamedTuple):
    """A call between two connections."""

    start: Start
    saved: tuple[SavedCall, ...] = ()  # each channel; (): the client will send all audio again

    @property
    def first(self) -> SavedCall:
        """The first channel: others have received the same, which need not be sent again."""
        return self.saved[0] if self.saved else SavedCall()


def to_bytes(call: SuspendedCall, key: bytes, name: str) -> bytes:
    """Return a call as bytes, authenticated with the key for this name."""
    sessions = [each.session for each in call.saved]
    head = {
        "start": call.start.model_dump_json(),
        "received": call.first.received,
        "commits": call.first.commits,
        "sizes": [*map(len, sessions)],
    }
    body = json.dumps(head).encode() + b"\n" + b"".join(sessions)
    return hmac.digest(key, name.encode() + body, "sha256") + body


def from_bytes(data: bytes, key: bytes, name: str) -> SuspendedCall:
    """Return the call that `to_bytes` wrote for this name.

    Raises:
        UserError: if the bytes are of another call or were written with another key.
    """
    body = data[TAG:]
    if not hmac.compare_digest(data[:TAG], hmac.digest(key, name.encode() + body, "sha256")):
        raise UserError("the saved call was written with another key, or is another call")
    head, _, sessions = body.partition(b"\n")
    values = json.loads(head)
    start = messages.parsed(values["start"])
    assert isinstance(start, Start)
    ends = accumulate(values["sizes"], initial=0)
    saved = tuple(
        SavedCall(sessions[a:b], values["received"], values["commits"]) for a, b in pairwise(ends)
    )
    return SuspendedCall(start, saved)
