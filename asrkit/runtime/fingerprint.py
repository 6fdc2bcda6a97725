"""A recogniser's fingerprint. Only a recogniser with the same one restores a saved stream."""

import hashlib
from typing import Any

from asrkit.audio import Fbank, Frontend
from asrkit.backends import Backend
from asrkit.errors import UserError, printable, shown
from asrkit.runtime.engine import Engine
from asrkit.runtime.transcript import DecodingOptions
from asrkit.search import Search

HASH = 64  # characters of a SHA-256


def identity(
    engine: Engine, decoding: DecodingOptions, postprocess: str | UserError | None
) -> dict[str, Any]:
    """The values that a stream's results depend on, but its samples and hotwords: JSON.

    Args:
        engine: of the recogniser.
        decoding: its options.
        postprocess: hash of its content when the recogniser was made, or why there is none.

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
        "endpointer": None if endpointer is None else dict(vars(endpointer)),
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
    # Streams that were saved before there was one go on.
    return found | ({"right_context": spec.context.right} if spec.context.right else {})


def frontend(frontend: Frontend) -> dict[str, Any] | None:
    """The kind of a frontend and its numbers; None for the one that all had once."""
    found, former = map(described, (frontend, Fbank(frontend.num_mels)))
    return None if found == former else found


def described(part: Search | Frontend) -> dict[str, Any]:
    """The kind of a search or a frontend, its options, and a hash of what its fusion is."""
    found: dict[str, Any] = {"kind": type(part).__name__}
    for name, value in vars(part).items():
        if isinstance(value, bool | int | float | str):
            found[name] = str(value)  # infinity is no JSON
        elif hasattr(value, "identity"):
            found[name] = hashlib.sha256(value.identity().encode()).hexdigest()
    return found


def differences(theirs: Any, ours: Any, name: str = "") -> list[str]:
    """What is not the same in two identities, a line each."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        keys = [*ours, *(key for key in theirs if key not in ours)]
        each = ((theirs.get(key), ours.get(key), f"{name}.{key}".strip(".")) for key in keys)
        return [line for arguments in each for line in differences(*arguments)]
    if theirs == ours:
        return []
    if isinstance(ours, str) and len(ours) == HASH:
        return [f"another {name}"]
    return [f"{printable(name)[:60]} {shown(theirs, 60)}, and this one has {shown(ours, 60)}"]
