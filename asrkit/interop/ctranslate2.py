"""The model.bin of CTranslate2: variables with names, in a row."""

import math
import struct
from typing import IO

import numpy as np
import torch
from torch import Tensor

from asrkit.errors import shown
from asrkit.interop.checkpoint import MOST_TENSORS, CheckpointError

VERSIONS = range(4, 7)  # of the format; earlier ones store other fields
TYPES = {0: "<f4", 1: "|i1", 2: "<i2", 3: "<i4", 4: "<f2"}
FLOATS = (0, 4)


class Reader:
    """The bytes of a file, in order; more than the file has is an error."""

    def __init__(self, file: IO[bytes]) -> None:
        self.left = file.seek(0, 2)
        file.seek(0)
        self.file = file

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        if size > self.left:
            raise CheckpointError("the file is cut off")
        self.left -= size
        return self.file.read(size)

    def number(self, form: str) -> int:
        """Return the next number, of a form of `struct`."""
        (value,) = struct.unpack(f"<{form}", self.take(struct.calcsize(form)))
        return int(value)

    def text(self) -> str:
        """Return the next string, which ends with a zero."""
        return self.take(self.number("H")).rstrip(b"\0").decode("utf-8", "replace")


def read_variables(file: IO[bytes], name: str) -> dict[str, Tensor]:
    """Read the variables by name, aliases included; weights must be floating point."""
    reader = Reader(file)
    version = reader.number("I")
    if version not in VERSIONS:
        raise CheckpointError(
            f"{shown(name)} is not a model of CTranslate2, or of an unknown version: {version}"
        )
    reader.text(), reader.number("I")  # name and revision of the kind of model
    variables: dict[str, Tensor] = {}
    count = reader.number("I")
    if count > MOST_TENSORS:
        raise CheckpointError(f"{shown(name)} has {count} variables, more than {MOST_TENSORS}")
    for _ in range(count):
        key = reader.text()
        shape = [reader.number("I") for _ in range(reader.number("B"))]
        kind, size = reader.number("B"), reader.number("I")
        data = reader.take(size)
        if kind not in (FLOATS if key.endswith("weight") else TYPES):
            raise CheckpointError(
                f"{shown(name)}: {shown(key)} has type {kind}: use a model in float16 or float32"
            )
        if size != math.prod(shape) * np.dtype(TYPES[kind]).itemsize:
            raise CheckpointError(f"{shown(name)}: the variable {shown(key)} is damaged")
        variables[key] = torch.from_numpy(np.frombuffer(data, TYPES[kind]).reshape(shape).copy())
    for _ in range(reader.number("I")):
        alias, key = reader.text(), reader.text()
        if key not in variables:
            raise CheckpointError(f"{shown(name)}: {shown(alias)} is an alias of nothing")
        variables[alias] = variables[key]
    return variables
