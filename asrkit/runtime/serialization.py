"""Writing the value of a stream as bytes and reading it: safetensors and JSON, never pickle.

A value consists of NamedTuples, tuples, numbers, texts and arrays. The annotations are the
schema for reading: another type or length is rejected. Numbers and shapes are trusted, because a
checksum precedes them.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from asrkit.errors import UserError, printable, reason, shown
from asrkit.runtime.words import AttachedWord, Word

MAGIC = b"asrkit stream 5\n"  # includes the version of the format
HASH = 64  # hexadecimal digits of a SHA-256
JSON = "json"  # name of the array whose bytes are the JSON text; the others have numbers
PRECISIONS = (np.float64, np.float32, np.float16, np.int64)

T = TypeVar("T")
ATTACHED = "attached"  # marks a word without a space before it, after the word's fields


class SavedStreamError(UserError):
    """A saved stream that cannot be restored; the message has the reason."""


def pack(value: Any, identity: Mapping[str, Any]) -> bytes:
    """Return a value and its recogniser's identity as bytes.

    Args:
        identity: identity of the recogniser, JSON.
    """
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps({"identity": identity, "stream": plain(value, arrays)})
    arrays[JSON] = np.frombuffer(text.encode(), np.uint8)
    data = save(arrays)
    return MAGIC + hashlib.sha256(data).digest() + data


def unpack(data: bytes) -> tuple[dict[str, Any], Any, dict[str, np.ndarray]]:
    """Return the recogniser's identity and the value that `pack` wrote, and the value's arrays.

    Raises:
        SavedStreamError: for other bytes.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise SavedStreamError(f"a saved stream must be bytes, got {shown(data)}")
    data, start = bytes(data), len(MAGIC) + hashlib.sha256().digest_size
    if not data.startswith(MAGIC):
        raise SavedStreamError("the bytes are not a saved stream of this version: save it again")
    if data[len(MAGIC) : start] != hashlib.sha256(data[start:]).digest():
        raise SavedStreamError("the saved stream is damaged: its bytes have changed")
    try:
        arrays = load(data[start:])
        header = json.loads(arrays.pop(JSON).tobytes())
        return dict(header["identity"]), header["stream"], arrays
    except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise SavedStreamError(f"the saved stream is damaged: {reason(error)}") from None


def plain(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value as JSON; arrays are replaced by names and added to `arrays`."""
    if isinstance(value, np.ndarray):
        name = str(len(arrays))
        arrays[name] = np.ascontiguousarray(value)
        return name
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        mark = [ATTACHED] if isinstance(value, AttachedWord) else []
        return [*(plain(item, arrays) for item in value), *mark]
    return value


def read(kind: type[T], value: Any, arrays: Mapping[str, np.ndarray]) -> T:
    """Return the value of type `kind` that `plain` has written.

    Raises:
        ValueError: if the value has another type, or contains a number that is not finite.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:  # for who knows the type: `read(type, *value)`
        return (value, arrays)  # type: ignore[return-value]
    if origin is UnionType:
        (inner,) = (part for part in arguments if part is not NoneType)
        return value if value is None else read(inner, value, arrays)  # type: ignore[return-value]
    if kind is np.ndarray:
        require(isinstance(value, str) and value in arrays, f"there is no array {shown(value)}")
        array: Any = arrays[value]
        require(array.dtype in PRECISIONS, f"an array is of {array.dtype}")
        require(bool(np.isfinite(array).all()), "an array holds NaN or infinity")
        return array
    if kind is Word and isinstance(value, list) and value[-1:] == [ATTACHED]:
        return read(AttachedWord, value[:-1], arrays)  # type: ignore[return-value]
    if origin is dict:
        require(isinstance(value, dict), f"expected a mapping, got {shown(value)}")
        return {name: read(arguments[1], item, arrays) for name, item in value.items()}  # type: ignore[return-value]
    if origin is tuple or issubclass(kind, tuple):
        require(isinstance(value, list), f"expected a list, got {shown(value)}")
        kinds = arguments if origin is tuple else tuple(get_type_hints(kind).values())
        if kinds[-1] is ...:
            kinds = kinds[:1] * len(value)
        items = (read(part, item, arrays) for part, item in zip(kinds, value, strict=True))
        return tuple(items) if origin is tuple else kind(*items)  # type: ignore[return-value]
    require(type(value) is kind, f"expected {kind.__name__}, got {shown(value)}")
    require(kind is not float or math.isfinite(value), f"{shown(value)} is out of range")
    return value


def require(holds: bool, problem: str) -> None:
    """Raise ValueError with this problem unless the condition holds."""
    if not holds:
        raise ValueError(problem)


def differences(stored: Any, wanted: Any, name: str = "") -> list[str]:
    """Return the differences between two recognisers' identities, a line each."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        keys = [*wanted, *(key for key in stored if key not in wanted)]
        pairs = ((stored.get(key), wanted.get(key), f"{name}.{key}".strip(".")) for key in keys)
        return [line for pair in pairs for line in differences(*pair)]
    if stored == wanted:
        return []
    if isinstance(wanted, str) and len(wanted) == HASH:
        return [f"another {name}"]
    return [f"{printable(name)[:60]} {shown(stored, 60)}, and this one has {shown(wanted, 60)}"]
