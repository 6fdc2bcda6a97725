"""A recogniser's fingerprint. A saved stream needs a recogniser with the same fingerprint."""

import hashlib
from typing import Any

from asrkit.audio import Fbank, Frontend
from asrkit.backends import Backend
from asrkit.errors import UserError, printable, shown
from asrkit.runtime.engine import Engine
from asrkit.runtime.transcript import DecodingOptions
from asrkit.search import Fusion, Search

HASH = 64  # hexadecimal digits of a SHA-256
# The attributes that state a search's or a frontend's options. Others, such as those that a version
# of torch gives to every module, are not part of an identity.
STATED = (
    "beam", "blank", "blank_penalty", "ceiling", "end_of_turn", "log_min_token", "log_skip_blank",
    "num_mels", "lead_frames", "frame_size", "hop", "fft_size", "before", "after", "mirrored",
    "edge", "marker", "preemphasis", "low", "high", "margin", "guard", "floor",
)  # fmt: skip
FORMER = ("training",)  # stored by former versions


def identity(
    engine: Engine, decoding: DecodingOptions, postprocess: str | UserError | None
) -> dict[str, Any]:
    """Return the values that a stream's results depend on, except samples and hotwords: JSON.

    Args:
        decoding: decoding options of the recogniser.
        postprocess: hash of its content when the recogniser was made, or the reason for having
            no hash.

    Raises:
        UserError: for a postprocess whose content cannot be compared.
    """
    if isinstance(postprocess, UserError):
        raise postprocess
    backend, endpointer, second = engine.backend, decoding.endpointer, decoding.second
    return {
        "weights": backend.weights(),
        "tokenizer": hashlib.sha256(decoding.tokenizer.to_bytes()).hexdigest(),
        **network(backend),
        "frontend": frontend(engine.frontend),
        "search": described(decoding.search),
        "endpointer": endpointer and endpointer.options,
        "postprocess": postprocess,
        "second_pass": second and network(second.engine.backend),
        "second_search": second and described(second.search),
    }


def network(backend: Backend) -> dict[str, Any]:
    spec = backend.spec
    found = {
        "backend": backend.kind,
        "precision": str(spec.dtype).removeprefix("torch."),
        "chunk_size": spec.context.chunk_size,
        "left_context": spec.context.left,
    }
    # Streams saved by versions without this entry can still be restored.
    return found | ({"right_context": spec.context.right} if spec.context.right else {})


def frontend(frontend: Frontend) -> dict[str, Any] | None:
    """Return the kind and numbers of a frontend; None for the one of earlier versions."""
    found, former = map(described, (frontend, Fbank(frontend.num_mels)))
    return None if found == former else found


def described(part: Search | Frontend) -> dict[str, Any]:
    """Return the kind of a search or a frontend, its options, and a hash of its fusion."""
    found: dict[str, Any] = {"kind": type(part).__name__}
    for name in STATED:
        value = getattr(part, name, None)
        if isinstance(value, bool | int | float | str):
            found[name] = str(value)  # JSON cannot write infinity
    fusion: Fusion | None = getattr(part, "fusion", None)
    if fusion is not None:
        found["fusion"] = hashlib.sha256(fusion.identity().encode()).hexdigest()
    return found


def differences(theirs: Any, ours: Any, name: str = "") -> list[str]:
    """Return the differences between two identities, a line each."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        keys = [*ours, *(key for key in theirs if key not in ours and key not in FORMER)]
        each = ((theirs.get(key), ours.get(key), f"{name}.{key}".strip(".")) for key in keys)
        return [line for arguments in each for line in differences(*arguments)]
    if theirs == ours:
        return []
    if isinstance(ours, str) and len(ours) == HASH:
        return [f"another {name}"]
    return [f"{printable(name)[:60]} {shown(theirs, 60)}, and this one has {shown(ours, 60)}"]
