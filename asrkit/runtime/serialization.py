"""Writing the value of a stream as bytes and reading it: safetensors and JSON, never pickle.

A value consists of NamedTuples, tuples, numbers, texts, arrays and tensors. The annotations are the
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
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from asrkit.errors import UserError, printable, reason, shown
from asrkit.runtime.words import AttachedWord, Word

MAGIC = b"asrkit stream 5\n"  # includes the version of the format
HASH = 64  # hexadecimal digits of a SHA-256
JSON = "json"  # name of the tensor whose bytes are the JSON text; the others have numbers
PRECISIONS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64)

T = TypeVar("T")
ATTACHED = "attached"  # marks a word without a space before it, after the word's fields


class SavedStreamError(UserError):
    """A saved stream that cannot be restored; the message has the reason."""


def pack(value: Any, identity: Mapping[str, Any]) -> bytes:
    """Return a value and its recogniser's identity as bytes.

    Args:
        identity: identity of the recogniser, JSON.
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps({"identity": identity, "stream": plain(value, tensors)})
    tensors[JSON] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    data = save(tensors)
    return MAGIC + hashlib.sha256(data).digest() + data


def unpack(data: bytes) -> tuple[dict[str, Any], Any, dict[str, Tensor]]:
    """Return the recogniser's identity and the value that `pack` wrote, and the value's tensors.

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
        tensors = load(data[start:])
        header = json.loads(tensors.pop(JSON).numpy().tobytes())
        parts = dict(header["identity"]), header["stream"], tensors
    except (
        SafetensorError,
        ValueError,
        TypeError,
        KeyError,
        RuntimeError,
        RecursionError,
    ) as error:
        raise SavedStreamError(f"the saved stream is damaged: {reason(error)}") from None
    return parts


def plain(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return a value as JSON; tensors and arrays are replaced by names and added to `tensors`."""
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return name
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        mark = [ATTACHED] if isinstance(value, AttachedWord) else []
        return [*(plain(item, tensors) for item in value), *mark]
    return value


def read(kind: type[T], value: Any, tensors: Mapping[str, Tensor]) -> T:
    """Return the value of type `kind` that `plain` has written.

    Raises:
        ValueError: if the value has another type, or contains a number that is not finite.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:  # for who knows the type: `read(type, *value)`
        return (value, tensors)  # type: ignore[return-value]
    if origin is UnionType:
        (inner,) = (part for part in arguments if part is not NoneType)
        return value if value is None else read(inner, value, tensors)  # type: ignore[return-value]
    if kind in (Tensor, np.ndarray):
        require(isinstance(value, str) and value in tensors, f"there is no tensor {shown(value)}")
        tensor: Any = tensors[value]
        types = PRECISIONS if kind is Tensor else PRECISIONS[:2]  # dtypes that NumPy has
        require(tensor.dtype in types, f"a tensor is of {tensor.dtype}")
        require(bool(tensor.isfinite().all()), "a tensor holds NaN or infinity")
        return tensor if kind is Tensor else tensor.numpy()
    if kind is Word and isinstance(value, list) and value[-1:] == [ATTACHED]:
        return read(AttachedWord, value[:-1], tensors)  # type: ignore[return-value]
    if origin is dict:
        require(isinstance(value, dict), f"expected a mapping, got {shown(value)}")
        return {name: read(arguments[1], item, tensors) for name, item in value.items()}  # type: ignore[return-value]
    if origin is tuple or issubclass(kind, tuple):
        require(isinstance(value, list), f"expected a list, got {shown(value)}")
        kinds = arguments if origin is tuple else tuple(get_type_hints(kind).values())
        if kinds[-1] is ...:
            kinds = kinds[:1] * len(value)
        items = (read(part, item, tensors) for part, item in zip(kinds, value, strict=True))
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
