"""Writing the value of a stream as bytes, and reading it again: safetensors and JSON, never pickle.

A value is made of NamedTuples, tuples, numbers, texts, arrays and tensors. The annotations are the
schema by which it is read: what has another type or length is refused. Which numbers and shapes
are possible is checked by the part of the stream whose value it is, with a ValueError.
"""

import hashlib
import hmac
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

from asrkit.errors import UserError, reason, shown
from asrkit.runtime.words import AttachedWord, Word

MAGIC = b"asrkit stream 1\n"  # with the version of the format
JSON = "json"  # name of the tensor whose bytes are the JSON text; the others have numbers
PRECISIONS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64)
LARGEST = 1 << 53  # of whole numbers: 18 000 years of samples
MOST = 1e8  # of a number in a tensor: samples, features, keys and values are far below

T = TypeVar("T")
ATTACHED = "attached"  # after the fields of a word without a space before it


class SavedStreamError(UserError):
    """A saved stream that cannot be restored; the message says why."""


def pack(value: Any, identity: Mapping[str, Any], key: bytes | None) -> bytes:
    """A value, and what its recogniser is, as bytes.

    Args:
        value: of a stream.
        identity: of the recogniser, JSON.
        key: with which the bytes are authenticated; without one they have a checksum.
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps({"identity": identity, "stream": plain(value, tensors)})
    tensors[JSON] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    data = save(tensors)
    return MAGIC + tag(data, key) + data


def unpack(data: bytes, key: bytes | None) -> tuple[dict[str, Any], Any, dict[str, Tensor]]:
    """Return the recogniser's identity and the value that `pack` wrote, and the value's tensors.

    Raises:
        SavedStreamError: for anything else, and for bytes that were written with another key.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise SavedStreamError(f"a saved stream is bytes, got {shown(data)}")
    data, start = bytes(data), len(MAGIC) + hashlib.sha256().digest_size
    if not data.startswith(MAGIC):
        raise SavedStreamError("these bytes are no saved stream, or one of another version")
    if not hmac.compare_digest(data[len(MAGIC) : start], tag(data[start:], key)):
        raise SavedStreamError(
            "the saved stream is not authentic: it has changed, or was saved with another key"
        )
    try:
        tensors = load(data[start:])
        header = json.loads(tensors.pop(JSON).numpy().tobytes())
        found = dict(header["identity"]), header["stream"], tensors
    except (
        SafetensorError,
        ValueError,
        TypeError,
        KeyError,
        RuntimeError,
        RecursionError,
    ) as error:
        raise SavedStreamError(f"the saved stream is damaged: {reason(error)}") from None
    return found


def tag(data: bytes, key: bytes | None) -> bytes:
    """HMAC-SHA256 with the key, or with the empty one, which anybody can compute.

    Raises:
        SavedStreamError: for a key that is none.
    """
    if key is not None and (not isinstance(key, bytes) or not key):
        raise SavedStreamError(f"a key is one byte or more, got {shown(type(key).__name__)}")
    return hmac.digest(key or b"", data, "sha256")


def plain(value: Any, tensors: dict[str, Tensor]) -> Any:
    """A value as JSON has it; tensors and arrays are named, and added to `tensors`."""
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
        return [*(plain(each, tensors) for each in value), *mark]
    return value


def read(kind: type[T], value: Any, tensors: Mapping[str, Tensor]) -> T:
    """The value of this type that `plain` has written.

    Raises:
        ValueError: if it is of another type, or has a number that is not finite.
    """
    found: Any = value
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:  # for who knows the type: `read(type, *value)`
        return (found, tensors)  # type: ignore[return-value]
    if origin is UnionType:
        (inner,) = (each for each in arguments if each is not NoneType)
        return found if value is None else read(inner, value, tensors)
    if kind in (Tensor, np.ndarray):
        known = isinstance(value, str) and value in tensors
        require(known, f"there is no tensor {shown(value)}")
        found = tensors[value]
        types = PRECISIONS if kind is Tensor else PRECISIONS[:2]  # those that NumPy has
        require(found.dtype in types, f"a tensor is of {found.dtype}")
        require(bool(found.isfinite().all()), "a tensor holds NaN or infinity")
        if found.is_floating_point() and found.numel():  # or the network would make infinity of it
            require(float(found.abs().max()) <= MOST, f"a tensor holds a number above {MOST:g}")
        return found if kind is Tensor else found.numpy()
    if kind is Word and isinstance(value, list) and value[-1:] == [ATTACHED]:
        return read(AttachedWord, value[:-1], tensors)  # type: ignore[return-value]
    if origin is dict:
        require(isinstance(value, dict), f"expected a mapping, got {shown(value)}")
        return {name: read(arguments[1], each, tensors) for name, each in value.items()}  # type: ignore[return-value]
    if origin is tuple or issubclass(kind, tuple):
        require(isinstance(value, list), f"expected a list, got {shown(value)}")
        kinds = arguments if origin is tuple else tuple(get_type_hints(kind).values())
        if kinds[-1] is ...:
            kinds = kinds[:1] * len(value)
        items = (read(each, item, tensors) for each, item in zip(kinds, value, strict=True))
        make: Any = tuple if origin is tuple else kind._make  # type: ignore[attr-defined]
        return make(items)
    require(type(value) is kind, f"expected {kind.__name__}, got {shown(value)}")
    if kind in (int, float):
        in_range = abs(found) <= LARGEST if kind is int else math.isfinite(found)
        require(in_range, f"{shown(value)} is out of range")
    return found


def require(holds: bool, problem: str) -> None:
    """Raises ValueError with this problem unless the condition holds."""
    if not holds:
        raise ValueError(problem)
