"""Sharded checkpoints: a folder with one file per rank, which holds that rank's rows.

torch.distributed.checkpoint is not used: its own format contains a pickle. Its reader of
safetensors compares no checksums, and silently omits the rows of a missing file.
"""

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from asrkit.errors import UserError
from asrkit.model_file import read_tensors
from asrkit.training.fsdp import own

WEIGHTS, OPTIMIZERS = "weights", "optimizers"  # keys of a checkpoint, prefixes of tensor names
NAME = re.compile(r"part-(\d{4})-of-(\d{4})\.safetensors")


class TrainingCheckpointError(UserError):
    """An error in writing a checkpoint or resuming from it; the message has the reason."""


def part_of(state: Mapping[str, Any], rank: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Copy the tensors that a rank saves, by flat name, and the header of their file.

    The header has the rest of the checkpoint and the number of rows of each sharded tensor.
    The first rank also saves the tensors that are not sharded.
    """
    tensors = {f"{WEIGHTS}.{name}": t for name, t in state[WEIGHTS].items()}
    for i, optimizer in enumerate(state[OPTIMIZERS]):
        for number, of_parameter in optimizer["state"].items():
            for key, tensor in of_parameter.items():
                tensors[f"{OPTIMIZERS}.{i}.{number}.{key}"] = tensor
    rows = {name: t.size(0) for name, t in tensors.items() if isinstance(t, DTensor)}
    copies = {
        name: own(t).detach().to("cpu", copy=True).contiguous()
        for name, t in tensors.items()
        if rank == 0 or name in rows
    }
    rest = {key: value for key, value in state.items() if key not in (WEIGHTS, OPTIMIZERS)}
    # A copy: training continues, and extends the history, before the file is written.
    return copies, deepcopy({"state": rest | {OPTIMIZERS: len(state[OPTIMIZERS])}, "rows": rows})


def read_parts(folder: Path, mesh: DeviceMesh | None = None) -> dict[str, Any]:
    """Read the state of a sharded checkpoint, whatever the number of ranks that wrote it.

    Args:
        mesh: ranks that share the tensors after reading; None for whole tensors.

    Raises:
        TrainingCheckpointError: if a part is missing or belongs to another checkpoint.
        ModelFileError: if a part is damaged.
    """
    pieces: dict[str, list[Tensor]] = {}
    seen: dict[str, int] = {}  # rows of the parts so far
    first: dict[str, Any] = {}
    for number, path in enumerate(part_paths(folder)):
        tensors, header = read_tensors(path)
        header = dict(header or {})
        first = first or header
        if without_time(header) != without_time(first):
            raise TrainingCheckpointError(f"{path.name} belongs to another checkpoint")
        rows = header["rows"]
        for name, tensor in tensors.items():
            if name not in rows:
                if number:
                    raise TrainingCheckpointError(
                        f"{path.name} has {name!r:.80}, which should be in the first part only"
                    )
                pieces[name] = [tensor]
                continue
            begin, end = share(rows[name], mesh)
            start = seen.get(name, 0)
            seen[name] = start + tensor.size(0)
            piece = tensor[max(0, begin - start) : max(0, end - start)]
            pieces.setdefault(name, []).append(piece.clone())  # a copy, to free the other rows
    if seen != first["rows"]:
        raise TrainingCheckpointError("rows of a tensor are missing")
    return unflattened(
        {
            name: spread(torch.cat(several), seen[name], mesh) if name in seen else several[0]
            for name, several in pieces.items()
        },
        first["state"],
    )


def part_name(rank: int, size: int) -> str:
    return f"part-{rank:04d}-of-{size:04d}.safetensors"


def part_paths(folder: Path) -> list[Path]:
    """Return the files of a checkpoint, in the order of the ranks that wrote them.

    Raises:
        TrainingCheckpointError: if a file is missing.
    """
    found = [match for path in folder.iterdir() if (match := NAME.fullmatch(path.name))]
    size = int(found[0][2]) if found else 0
    names = [part_name(rank, size) for rank in range(size)]
    missing = sorted(set(names) - {match[0] for match in found})
    if missing or len(found) != size or not names:
        raise TrainingCheckpointError(f"{missing[0] if missing else 'part of it'} is missing")
    return [folder / name for name in names]


def without_time(header: dict[str, Any]) -> str:
    """Return a part's header without the only number that differs between ranks."""
    return json.dumps(header | {"state": header["state"] | {"wall_seconds": 0.0}})


def share(rows: int, mesh: DeviceMesh | None) -> tuple[int, int]:
    """Return the first row of this rank's share and the end of the share, as torch shards."""
    if mesh is None:
        return 0, rows
    each = -(-rows // mesh.size())
    begin = min(rows, each * mesh.get_local_rank())
    return begin, min(rows, begin + each)


def spread(local: Tensor, rows: int, mesh: DeviceMesh | None) -> Tensor:
    """Return a sharded tensor with `rows` rows in total; `local` is this rank's share."""
    if mesh is None:
        return local
    shape = torch.Size([rows, *local.shape[1:]])
    strides = torch.empty(shape, device="meta").stride()
    local = local.to(mesh.device_type)
    return DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=shape, stride=strides)


def unflattened(tensors: dict[str, Tensor], rest: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of a checkpoint from its tensors by flat name and its header."""
    count = rest[OPTIMIZERS]
    if not 0 <= count <= len(tensors):
        raise TrainingCheckpointError(
            f"{count} optimisers in its header, for {len(tensors)} tensors"
        )
    optimizers: list[dict[str, Any]] = [{"state": {}} for _ in range(count)]
    weights = {}
    for name, tensor in tensors.items():
        kind, _, key = name.partition(".")
        if kind == WEIGHTS:
            weights[key] = tensor
        else:
            i, number, key = key.split(".")
            optimizers[int(i)]["state"].setdefault(int(number), {})[key] = tensor
    history = {int(epoch): rates for epoch, rates in rest["history"].items()}  # JSON keys are text
    return rest | {WEIGHTS: weights, OPTIMIZERS: optimizers, "history": history}
