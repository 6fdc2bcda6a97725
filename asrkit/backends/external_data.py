"""Weights of an export in a file of their own, because a protobuf file holds less than 2 GiB.

`model.onnx` has the graph, `model.onnx.data` the weights. The graph's file states the size and the
SHA-256 of its data, so the digest of the graph's file covers both. asrkit opens no path that a file
states: the data of `PATH` is `PATH.data`. The name in the file is for other programs, which look
for it in the folder of the graph.
"""

import json
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from asrkit.atomic_write import sha256_of
from asrkit.errors import UserError, reason, shown
from asrkit.extras import need

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

DATA = "asrkit_data"  # key of the record in a file's metadata


class ExternalData(NamedTuple):
    """The weights of a graph, mapped into memory.

    They are only read while something is made of them: a process that reads a mapped file which
    another one truncates dies of SIGBUS.
    """

    name: str  # location of the tensors in the graph's file
    content: np.ndarray  # (bytes,) uint8

    def array(self, tensor: "TensorProto") -> np.ndarray:
        """Return the numbers of a tensor of the graph, in its own file or here."""
        from onnx import helper, numpy_helper

        place = {entry.key: entry.value for entry in tensor.external_data}
        if not place:
            return numpy_helper.to_array(tensor)
        start = int(place.get("offset", 0))
        kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        found = self.content[start : start + int(place["length"])].view(kind)
        return found.reshape(tensor.dims)


NOTHING = ExternalData("", np.zeros(0, np.uint8))  # of a graph that holds all its weights


def data_path(path: Path) -> Path:
    """Return the path of the data of a graph's file."""
    return path.with_name(f"{path.name}.data")


def record(path: Path, name: str) -> str:
    """Return the text in the graph's metadata for the data of a file at this path.

    Args:
        path: path of the graph's file.
        name: final name of the data's file.
    """
    data = data_path(path)
    return json.dumps({"name": name, "bytes": data.stat().st_size, "sha256": sha256_of(data)})


def states_data(graph: bytes) -> bool:
    """Return whether the bytes of a graph's file state that its weights are in another file."""
    return DATA.encode() in graph


def read_data(path: Path, graph: bytes) -> ExternalData:
    """Return the checked data of a graph.

    Args:
        path: path of the graph's file.

    Raises:
        UserError: if the data is missing, cut or changed.
        ValueError: if the graph states something else than asrkit writes.
    """
    if not states_data(graph):
        return NOTHING
    need("onnx")
    import onnx

    name, size, digest = stated(onnx.load_model_from_string(graph))
    data = data_path(path)
    if not data.is_file():
        raise UserError(
            f"{shown(path)} has its weights in {shown(data)}, which is missing: put it there, or "
            "export again"
        )
    if (found := data.stat().st_size) != size:
        raise UserError(
            f"{shown(data)} has {found} bytes, {shown(path)} needs {size}: copy both files of the "
            "export, or export again"
        )
    if sha256_of(data) != digest:
        raise UserError(
            f"{shown(data)} is not the data of {shown(path)}, or was changed: export it again"
        )
    return ExternalData(name, np.memmap(data, np.uint8, "r"))


def stated(graph: "ModelProto") -> tuple[str, int, str]:
    """Return name, bytes and SHA-256 in the record of a graph.

    Raises:
        ValueError: for another record, or a name that is not that of a file in the graph's folder.
    """
    texts = {each.key: each.value for each in graph.metadata_props}
    try:
        values = json.loads(texts[DATA])
        name, size, digest = values["name"], values["bytes"], values["sha256"]
    except (KeyError, TypeError, RecursionError, ValueError) as error:
        raise ValueError(f"the record of its weights is damaged: {reason(error)}") from None
    if not isinstance(size, int) or size < 1 or not isinstance(digest, str):
        raise ValueError("the record of its weights is damaged")
    plain = isinstance(name, str) and name == PurePath(name).name and "\\" not in name
    if not plain or name in ("", ".."):
        raise ValueError(f"its weights must be in its own folder, not at {shown(name)}")
    return name, size, digest
