"""Mutations of files: of bytes, of values in JSON and YAML, and inside containers.

A container (zip, tar, gzip, safetensors, a saved stream) is packed again with right checksums, so
that the mutation reaches the code behind them.
"""

import gzip
import hashlib
import hmac
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

import yaml

DEEP = "@deep@"  # replaced by nested lists in the text
VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 255, 1 << 31, 1 << 53, 1 << 63, -(1 << 63), 1 << 64, 10**400,
    -0.0, 0.5, 1e-320, 1e-9, 1e18, 1.8e308, float("nan"), float("inf"), -float("inf"),
    "", " ", "\0", "x" * 100_000, "\ud800", "\u202e", "e\u0301", "\U0001f600", "../../../etc",
    "/etc/passwd", "/tmp/torture", "http://127.0.0.1:9/x", "|touch escaped", "$(touch escaped)",
    "1e5", "nan", "-", "~", "*", "\n", [], {}, [[]], [None], {"": None}, {"kind": "x"}, DEEP,
]  # fmt: skip
NUMBERS = [b"0", b"-1", b"1e999", b"nan", b"9" * 400, b"2147483648", b"4294967295", b"1e-320", b""]
LETTERS = [
    "\0", "\ufeff", "\u2028", "\u202e", "\u0301", "\U0001f600", "\xa0", "\r", "\t", '"', "\x1b[31m",
]  # fmt: skip
GZIP, ZIP, STREAM = b"\x1f\x8b", b"PK\x03\x04", b"asrkit stream 1\n"
LARGEST = 1 << 23  # bytes of a mutated file


def mutated(data: bytes, other: bytes, draw: Random) -> bytes:
    """Return the data of a file with one mutation; `other` is another file's, for splices."""
    if draw.random() < 0.85:  # else the container itself
        for fits, inside in CONTAINERS:
            if fits(data):
                try:
                    return inside(data, other, draw)[:LARGEST]
                except Exception:  # mutated before: its bytes are no longer such a container
                    break
    return of_bytes(data, other, draw)[:LARGEST]


def of_bytes(data: bytes, other: bytes, draw: Random) -> bytes:
    """Return bytes with one mutation."""
    start = draw.choice([0, 0, draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)])
    if start == 0 and draw.random() < 0.7:
        start = draw.randrange(min(len(data), 256) + 1)  # headers
    size = int(2 ** (draw.random() * 14))
    head, body, tail = data[:start], data[start : start + size], data[start + size :]
    kind = draw.randrange(10)
    if kind == 0:
        return data[: draw.randrange(len(data) + 1)]
    if kind == 1:
        changed = bytearray(data)
        for _ in range(draw.choice([1, 1, 2, 8, 64])):
            if changed:
                changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        return bytes(changed)
    if kind == 2:  # a number of a header
        width, order = draw.choice([1, 2, 4, 8]), draw.choice(["little", "big"])
        most = (1 << 8 * width) - 1
        number = draw.choice([0, 1, most, most >> 1, (most >> 1) + 1, draw.randint(0, most)])
        return head + number.to_bytes(width, order) + data[start + width :]  # type: ignore[arg-type]
    if kind == 3:
        return head + tail
    if kind == 4:
        return head + body * draw.choice([2, 3, 50]) + tail
    if kind == 5:
        return head + bytes(min(size, 4096)) + draw.choice([b"", body]) + tail
    if kind == 6:
        return head + draw.randbytes(min(size, 256)) + tail
    if kind == 7:
        return head + other[draw.randrange(len(other) + 1) :]
    if kind == 8:
        swapped = draw.choice([4, 16, 64, 512])
        return other[:swapped] + data[swapped:]
    return of_text(data, draw)


def of_text(data: bytes, draw: Random) -> bytes:
    """Return a text with another number, letter, or order of its lines."""
    lines = data.splitlines(keepends=True)
    kind = draw.randrange(4)
    if kind == 0 and (found := list(re.finditer(rb"-?\d+(\.\d+)?", data[:100_000]))):
        at = draw.choice(found)
        return data[: at.start()] + draw.choice(NUMBERS) + data[at.end() :]
    if kind == 1:
        place = draw.randrange(len(data) + 1)
        letters = draw.choice(LETTERS) * draw.choice([1, 1, 1000])
        return data[:place] + letters.encode() + data[place:]
    if kind == 2 and lines:
        draw.shuffle(lines)
        return b"".join(lines[: draw.randrange(len(lines)) + 1])
    if lines:
        place = draw.randrange(len(lines))
        line = lines[place]
        words = line.split(b" ")
        draw.shuffle(words)
        lines[place] = draw.choice(
            [line * 2, line.strip()[:10_000] * 200, b" ".join(words), b"\n" * 50]
        )
    return b"".join(lines)


def of_value(value: Any, draw: Random) -> Any:
    """Return nested lists and dicts with another value, key or size at one place."""
    places: list[tuple[Any, Any]] = []

    def walk(part: Any) -> None:
        items = part.items() if isinstance(part, dict) else enumerate(part)
        for key, each in list(items)[:200]:
            places.append((part, key))
            if isinstance(each, dict | list):
                walk(each)

    if not isinstance(value, dict | list) or draw.random() < 0.02:
        return draw.choice(VALUES)
    walk(value)
    if not places:
        return draw.choice(VALUES)
    part, key = draw.choice(places)
    kind = draw.randrange(8)
    if kind == 0:
        del part[key]
    elif kind == 1 and isinstance(part, dict):
        part[draw.choice([str(key) + "x", "", "\ud800", "x" * 10_000])] = part.pop(key)
    elif kind == 2 and isinstance(part, list):
        part.extend(part[key : key + 1] * draw.choice([1, 100, 10_000]))
    elif kind == 3:
        other, name = draw.choice(places)
        part[key] = json.loads(json.dumps(other[name], default=str))
    elif kind == 4 and type(part[key]) in (int, float):
        part[key] = draw.choice([-part[key], part[key] * 10**9, part[key] + 0.5, str(part[key])])
    else:
        part[key] = draw.choice(VALUES)
    return value


def of_json(data: bytes, other: bytes, draw: Random) -> bytes:
    """Mutate the value of one line, or of the whole text if it is one value."""
    lines = data.splitlines(keepends=True)
    try:
        values, place = json.loads(data), None
    except ValueError:
        place = draw.randrange(len(lines))
        values = json.loads(lines[place])
    text = json.dumps(of_value(values, draw)).replace(f'"{DEEP}"', "[" * 3000 + "]" * 3000).encode()
    if place is None:
        return text
    return b"".join([*lines[:place], text + b"\n", *lines[place + 1 :]])


def of_yaml(data: bytes, other: bytes, draw: Random) -> bytes:
    """Mutate a value of a YAML text."""
    values = yaml.load(data, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(of_value(values, draw), Dumper=dumper, sort_keys=False)
    return text.replace(DEEP, "[" * 500 + "]" * 500).encode("utf-8", "surrogatepass")


def of_zip(data: bytes, other: bytes, draw: Random) -> bytes:
    """Mutate a member of a zip file: torch's checkpoints are zip files without compression."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(each.filename, archive.read(each)) for each in archive.infolist()]
    place = draw.randrange(len(members))
    pickles = [i for i, (name, _) in enumerate(members) if name.endswith(".pkl")]
    place = draw.choice(pickles) if pickles and draw.random() < 0.7 else place
    name, body = members[place]
    members[place] = draw.choice([(name, mutated(body, other, draw))] * 6 + [(name + "x", body)])
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, body in members:
            archive.writestr(zipfile.ZipInfo(name), body)  # without the time of day
    return file.getvalue()


def of_tar(data: bytes, other: bytes, draw: Random) -> bytes:
    """Mutate a member of a tar file, its name or its kind."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = [(each, archive.extractfile(each)) for each in archive]
        bodies = [(each, b"" if body is None else body.read()) for each, body in members]
    place = draw.randrange(len(bodies))
    member, body = bodies[place]
    if draw.random() < 0.2:
        member.name = draw.choice(
            ["../escaped", "/tmp/escaped", "a" * 300, "\0", "./" + member.name]
        )
    elif draw.random() < 0.1:
        member.type, member.linkname = draw.choice([b"1", b"2", b"6"]), "/etc/passwd"
    else:
        bodies[place] = member, mutated(body, other, draw)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for each, body in bodies:
            each.size = len(body)
            archive.addfile(each, io.BytesIO(body))
    return file.getvalue()


def of_gzip(data: bytes, other: bytes, draw: Random) -> bytes:
    return gzip.compress(mutated(gzip.decompress(data), other, draw), 1, mtime=0)


def of_safetensors(data: bytes, other: bytes, draw: Random) -> bytes:
    """Mutate the header of a .safetensors file, its metadata or its tensors."""
    from asrkit.model_file import CHECKSUM, HEADER, checksum

    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    own = header.get("__metadata__", {})
    if HEADER in own and draw.random() < 0.6:
        record = json.loads(own[HEADER])
        sign = CHECKSUM in record
        record.pop(CHECKSUM, None)
        own[HEADER] = of_json(json.dumps(record).encode(), other, draw).decode()
        packed = with_header(header, body)
        if sign and isinstance(changed := json.loads(own[HEADER]), dict):
            from safetensors.torch import load

            own[HEADER] = json.dumps(changed | {CHECKSUM: checksum(load(packed), changed)})
        return with_header(header, body)
    if draw.random() < 0.7:
        return with_header(of_value(header, draw), body)
    return with_header(header, of_bytes(body, other, draw))


def with_header(header: Any, body: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def of_stream(data: bytes, other: bytes, draw: Random) -> bytes:
    """Mutate a saved stream of asrkit, and sign it like anyone who knows the format."""
    from safetensors.torch import load, save

    tensors = load(data[len(STREAM) + 32 :])
    name = draw.choice(["json"] * len(tensors) + list(tensors))
    if name == "json":
        import torch

        text = of_json(tensors[name].numpy().tobytes(), other, draw)
        tensors[name] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    else:
        value = tensors[name]
        changes: list[Callable[[], Any]] = [
            lambda: value.flatten()[: draw.randrange(value.numel() + 1)], lambda: value[..., None],
            lambda: value.double(), lambda: value.long(), lambda: value * float("nan"),
            lambda: value * -1e8, lambda: value.new_zeros(0), lambda: value.repeat(3),
            lambda: value.half(), lambda: -value,
        ]  # fmt: skip
        tensors[name] = draw.choice(changes)().contiguous()
    packed = save(tensors)
    return STREAM + hmac.digest(b"", packed, hashlib.sha256) + packed


def is_safetensors(data: bytes) -> bool:
    return data[8:9] == b"{" and 0 < int.from_bytes(data[:8], "little") < len(data)


def is_json(data: bytes) -> bool:
    return data[:1] in (b"{", b"[") and b'"' in data[:200]


def is_yaml(data: bytes) -> bool:
    return len(data) < 100_000 and bool(re.match(rb"(#.*\n|\s)*[\w-]+:[ \n]", data[:2000]))


CONTAINERS: list[tuple[Callable[[bytes], bool], Callable[[bytes, bytes, Random], bytes]]] = [
    (lambda data: data[:2] == GZIP, of_gzip), (lambda data: data[:4] == ZIP, of_zip),
    (lambda data: data[257:262] == b"ustar", of_tar), (is_safetensors, of_safetensors),
    (lambda data: data.startswith(STREAM), of_stream), (is_json, of_json), (is_yaml, of_yaml),
]  # fmt: skip
