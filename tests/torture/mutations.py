"""Mutations of files as strategies: of bytes, of values in JSON, and inside containers.

A container (zip, tar, safetensors) is packed again with right checksums, so
that the mutation reaches the code behind them. The simplest mutation cuts the end off.
"""

import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from safetensors.torch import load

from asrkit.model_header import CHECKSUM, HEADER
from asrkit.model_tensors import checksum

Draw = Callable[[st.SearchStrategy[Any]], Any]  # what a composite strategy gets
LARGEST = 1 << 23  # bytes of a mutated file
DEEP = "@deep@"  # replaced by nested lists in the text
TEXTS = [
    "", " ", "\0", "x" * 100_000, "\ud800", "\u202e", "e\u0301", "\U0001f600", "\ufeff", "\x1b[31m",
    "../../../etc", "/etc/passwd", "/tmp/torture", "http://127.0.0.1:9/x", "|touch escaped",
    "$(touch escaped)", "1e5", "nan", "-", "~", "*", "\n", "\u2028", "\r", "\t", '"', DEEP,
]  # fmt: skip
NUMBERS = [b"0", b"-1", b"1e999", b"nan", b"9" * 400, b"2147483648", b"4294967295", b"1e-320", b""]
HUGE = [2**31, 2**53, 2**63, -(2**63), 2**64, 10**400, 1e-320, 1.8e308]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 300)
    | st.floats()
    | st.sampled_from([*HUGE, *TEXTS]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["", "kind", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@st.composite
def mutated(draw: Draw, data: bytes, other: bytes) -> bytes:
    """Draw a file's data with one mutation; `other` is another file's, for splices."""
    if draw(st.integers(0, 6)):  # else the container itself
        for fits, inside in CONTAINERS:
            if fits(data):
                try:
                    return inside(draw, data, other)[:LARGEST]
                except HypothesisException:
                    raise
                except Exception:  # mutated before: its bytes are no longer such a container
                    break
    return of_bytes(draw, data, other)[:LARGEST]


def of_bytes(draw: Draw, data: bytes, other: bytes) -> bytes:
    """Draw bytes with one mutation."""
    start = draw(st.integers(0, min(len(data), 256)) | st.integers(0, len(data)))  # headers first
    size = draw(st.sampled_from([1, 2, 4, 8, 64, 512, 16384]))
    body, kind = data[start : start + size], draw(st.integers(0, 3))
    if kind == 0:
        return data[:start]
    if kind == 1:  # a number of a header
        size, order = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from(["little", "big"]))
        most = (1 << 8 * size) - 1
        number = draw(st.sampled_from([0, 1, most, most >> 1, (most >> 1) + 1]))
        new = draw(st.just(number) | st.integers(0, most)).to_bytes(size, order)
    elif kind == 2:  # another piece in place of this one
        pieces = [b"", body * 2, body * 50, bytes(len(body)), other[start:], other[:size]]
        new = draw(st.sampled_from(pieces) | st.binary(max_size=64))
    elif found := list(re.finditer(rb"-?\d+(\.\d+)?", data[:100_000])):  # a number of a text
        at = draw(st.sampled_from(found))
        start, size, new = at.start(), len(at[0]), draw(st.sampled_from(NUMBERS))
    else:
        new = draw(st.sampled_from(TEXTS)).encode("utf-8", "surrogatepass")
    return data[:start] + new + data[start + size :]


def of_value(draw: Draw, value: Any) -> Any:
    """Draw nested lists and dicts with another value, key or size at one place."""
    places: list[tuple[Any, Any]] = []

    def walk(part: Any) -> None:
        if isinstance(part, dict | list):
            for key, each in list(part.items() if isinstance(part, dict) else enumerate(part)):
                places.append((part, key))
                walk(each)

    walk(value)
    if not places or draw(st.integers(0, 50)) == 50:
        return draw(VALUES)
    part, key = draw(st.sampled_from(places))
    kind = draw(st.integers(0, 4))
    if kind == 0:
        del part[key]
    elif kind == 1 and isinstance(part, dict):
        part[draw(st.sampled_from([f"{key}x", "", "\ud800", "x" * 10_000]))] = part.pop(key)
    elif kind == 1:
        part.extend(part[key : key + 1] * draw(st.sampled_from([1, 100, 10_000])))
    elif kind == 2 and type(part[key]) in (int, float):
        part[key] = draw(st.sampled_from([-part[key], part[key] * 10**9, part[key] + 0.5]))
    else:
        part[key] = draw(VALUES)
    return value


def of_json(draw: Draw, data: bytes, other: bytes) -> bytes:
    """Mutate the value of a JSON text."""
    text = json.dumps(of_value(draw, json.loads(data)))
    return text.replace(f'"{DEEP}"', "[" * 3000 + "]" * 3000).encode()


def of_zip(draw: Draw, data: bytes, other: bytes) -> bytes:
    """Mutate a member of a zip file: torch's checkpoints are zip files without compression."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(each.filename, archive.read(each)) for each in archive.infolist()]
    pickles = [place for place, (name, _) in enumerate(members) if name.endswith(".pkl")]
    place = draw(st.sampled_from(pickles * len(members) + [*range(len(members))]))
    name, body = members[place]
    is_named = draw(st.integers(0, 6)) == 6
    members[place] = (name + "x", body) if is_named else (name, draw(mutated(body, other)))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, body in members:
            archive.writestr(zipfile.ZipInfo(name), body)  # without the time of day
    return file.getvalue()


def of_tar(draw: Draw, data: bytes, other: bytes) -> bytes:
    """Mutate a member of a tar file, its name or its kind."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = [(each, archive.extractfile(each)) for each in archive]
        bodies = [[each, b"" if body is None else body.read()] for each, body in members]
    chosen, kind = draw(st.sampled_from(bodies)), draw(st.integers(0, 9))
    if kind > 7:
        chosen[0].name = draw(st.sampled_from(["../escaped", "/tmp/escaped", "a" * 300, "\0"]))
    elif kind == 7:
        chosen[0].type, chosen[0].linkname = draw(st.sampled_from([b"1", b"2"])), "/etc/passwd"
    else:
        chosen[1] = draw(mutated(chosen[1], other))
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for each, body in bodies:
            each.size = len(body)
            archive.addfile(each, io.BytesIO(body))
    return file.getvalue()


def of_safetensors(draw: Draw, data: bytes, other: bytes) -> bytes:
    """Mutate the header of a .safetensors file, its metadata or its tensors."""
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    metadata, kind = header.get("__metadata__", {}), draw(st.integers(0, 9))
    if HEADER in metadata and kind < 6:
        record = json.loads(metadata[HEADER])
        sign = record.pop(CHECKSUM, None) is not None
        metadata[HEADER] = of_json(draw, json.dumps(record).encode(), other).decode()
        if sign and isinstance(changed := json.loads(metadata[HEADER]), dict):
            tensors = load(with_header(header, body))
            metadata[HEADER] = json.dumps(changed | {CHECKSUM: checksum(tensors, changed)})
        return with_header(header, body)
    if kind < 9:
        return with_header(of_value(draw, header), body)
    return with_header(header, of_bytes(draw, body, other))


def with_header(header: Any, body: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def is_safetensors(data: bytes) -> bool:
    return data[8:9] == b"{" and 0 < int.from_bytes(data[:8], "little") < len(data)


def is_json(data: bytes) -> bool:
    return data[:1] in (b"{", b"[") and b'"' in data[:200]


CONTAINERS: list[tuple[Callable[[bytes], bool], Callable[[Draw, bytes, bytes], bytes]]] = [
    (lambda data: data.startswith(b"PK\x03\x04"), of_zip),
    (lambda data: data[257:262] == b"ustar", of_tar), (is_safetensors, of_safetensors),
    (is_json, of_json),
]  # fmt: skip
