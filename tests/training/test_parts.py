"""Checkpoints in parts: any number of ranks' rows make the whole; nothing damaged is used."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh

from asrkit.model_file import read_tensors, write_tensors
from asrkit.training.checkpoint_parts import (
    TrainingCheckpointError,
    part_name,
    part_of,
    read_parts,
    share,
)
from asrkit.training.checkpoints import Checkpoints, read_checkpoint
from asrkit.training.sharded_checkpoints import rename
from tests.training.test_checkpoints import flipped, same, state, step_of


def flat(saved: dict[str, Any]) -> dict[str, torch.Tensor]:
    tensors = {f"weights.{name}": t for name, t in saved["weights"].items()}
    for i, optimizer in enumerate(saved["optimizers"]):
        for number, of_parameter in optimizer["state"].items():
            tensors |= {f"optimizers.{i}.{number}.{key}": t for key, t in of_parameter.items()}
    return tensors


def write_parts(folder: Path, ranks: int, step: int = 1, **changes: Any) -> dict[str, Any]:
    """A checkpoint as so many ranks write it; returns its contents."""
    torch.manual_seed(step)
    saved = state(step)
    rest = {key: value for key, value in saved.items() if key not in ("weights", "optimizers")}
    tensors = flat(saved)
    rows = {name: len(t) for name, t in tensors.items() if t.dim()}
    for rank in range(ranks):
        header = {"state": rest | {"optimizers": 2, "wall_seconds": rank + 1.0}, "rows": rows}
        part = {}
        for name, tensor in tensors.items():
            if name not in rows:
                part |= {name: tensor} if rank == 0 else {}
                continue
            pieces = tensor.chunk(ranks)
            part[name] = pieces[rank].clone() if rank < len(pieces) else tensor[:0].clone()
        write_tensors(folder / part_name(rank, ranks), part, header | changes)
    return saved


class Mesh(DeviceMesh):
    """Of one rank among several, in one process."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks

    def size(self, mesh_dim: int | None = None) -> int:
        return self.ranks

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        return self.rank


@pytest.mark.parametrize("ranks", [1, 2, 3, 50])
def test_any_number_of_ranks_makes_the_whole(ranks: int, tmp_path: Path) -> None:
    """More ranks than rows, too."""
    saved = write_parts(tmp_path / "step-1", ranks)
    found = read_checkpoint(tmp_path / "step-1")
    read, written = flat(found.model_dump()), flat(saved)
    assert read.keys() == written.keys()
    assert all(same(read[name], written[name]) for name in written)
    assert (found.progress._asdict(), found.history) == (saved["progress"], saved["history"])
    assert found.model_extra == {"training.optimizer": "0123"}


@pytest.mark.parametrize(("rows", "ranks"), [(7, 2), (8, 4), (2, 4), (5, 4), (0, 2), (9, 1)])
def test_shares_are_torchs(rows: int, ranks: int) -> None:
    pieces = [len(piece) for piece in torch.zeros(rows).chunk(ranks)]
    shares = [share(rows, Mesh(rank, ranks)) for rank in range(ranks)]
    assert [end - begin for begin, end in shares] == pieces + [0] * (ranks - len(pieces))
    assert share(rows, None) == (0, rows)


def missing(folder: Path) -> None:
    (folder / part_name(1, 3)).unlink()


def last_missing(folder: Path) -> None:
    (folder / part_name(2, 3)).unlink()


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def foreign(folder: Path) -> None:
    write_parts(folder.with_name("other"), 3, 7)
    shutil.copy(folder.with_name("other") / part_name(1, 3), folder)


def of_other_ranks(folder: Path) -> None:
    write_parts(folder, 2, 2)


def damaged(folder: Path) -> None:
    flipped(folder / part_name(1, 3))


def truncated(folder: Path) -> None:
    path = folder / part_name(2, 3)
    path.write_bytes(path.read_bytes()[:-10])


def twice(folder: Path) -> None:
    """The first part again, as the second."""
    shutil.copy(folder / part_name(0, 3), folder / part_name(1, 3))


def changed(key: str, value: Any) -> Any:
    """What gives all parts another header, with its checksum."""

    def change(folder: Path) -> None:
        for path in folder.iterdir():
            tensors, header = read_tensors(path)
            write_tensors(path, tensors, json.loads(json.dumps(header)) | {key: value})

    return change


def rows_changed(value: Any) -> Any:
    """What gives all parts another number of rows of one tensor."""

    def change(folder: Path) -> None:
        rows = (read_tensors(folder / part_name(0, 3))[1] or {})["rows"]
        changed("rows", rows | {next(iter(rows)): value})(folder)

    return change


def renamed(name: str) -> Any:
    """Rename a tensor of the first part that is not sharded."""

    def change(folder: Path) -> None:
        tensors, header = read_tensors(folder / part_name(0, 3))
        assert header is not None
        for old in list(tensors):
            if old not in header["rows"]:
                tensors[name] = tensors.pop(old)
        write_tensors(folder / part_name(0, 3), tensors, header)

    return change


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (missing, "part-0001-of-0003.safetensors is missing"),
        (last_missing, "part-0002-of-0003.safetensors is missing"),
        (empty, "part of it is missing"),
        (foreign, "part-0001-of-0003.safetensors belongs to another checkpoint"),
        (of_other_ranks, "is missing"),
        (damaged, "part-0001-of-0003.safetensors is damaged"),
        (truncated, "part-0002-of-0003.safetensors is damaged"),
        (twice, "which should be in the first part only"),
        (changed("rows", {}), "which should be in the first part only"),
        (rows_changed(10**15), "rows of a tensor are missing"),
        (rows_changed(-1), "rows of a tensor are missing"),
        (rows_changed("5"), "damaged, or not a checkpoint: TypeError"),
        (changed("rows", None), "damaged, or not a checkpoint: TypeError"),
        (changed("state", {"optimizers": 10**12, "history": {}}), "1000000000000 optimisers"),
        (changed("state", {}), "damaged, or not a checkpoint: KeyError"),
        (renamed("optimizers.9.0.step"), "damaged, or not a checkpoint: IndexError"),
        (renamed("optimizers.x"), "damaged, or not a checkpoint: ValueError"),
    ],
)
def test_one_that_is_not_whole_is_named_and_the_one_before_is_taken(
    damage: Any, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path / "c", 2)
    for step in (1, 2):
        write_parts(tmp_path / "c" / f"step-{step:08d}", 3, step)
    assert checkpoints.newest(step_of) == 2
    damage(tmp_path / "c" / "step-00000002")
    assert checkpoints.newest(step_of) == 1
    (line,) = caplog.messages
    assert line.startswith(f"cannot resume from {tmp_path}/c/step-00000002: ")
    assert told in line
    assert len(line) < 2 * len(str(tmp_path)) + 250


def test_what_is_saved_is_of_its_time() -> None:
    """Training goes on while it is written: steps and scores of later are not in it."""
    saved = state()
    tensors, header = part_of(saved, 0)
    before = json.dumps(header), {name: t.clone() for name, t in tensors.items()}
    saved["history"][1] = {"full": 40.0}
    saved["history"][0]["full"] = 0.0
    for tensor in flat(saved).values():
        tensor.add_(1.0)
    assert json.dumps(header) == before[0]
    assert same(tensors, before[1])
    assert header != part_of(saved, 0)[1]  # control
    assert not same(tensors, part_of(saved, 0)[0])


def test_a_row_too_few_or_too_many(tmp_path: Path) -> None:
    for ranks, rows in ((2, 4), (2, 6)):
        folder = tmp_path / str(rows)
        for rank in range(ranks):
            header = {"state": {"optimizers": 0, "history": {}}, "rows": {"weights.x": rows}}
            write_tensors(folder / part_name(rank, ranks), {"weights.x": torch.ones(2)}, header)
    assert len(read_parts(tmp_path / "4")["weights"]["x"]) == 4  # control
    with pytest.raises(TrainingCheckpointError, match="rows of a tensor are missing"):
        read_parts(tmp_path / "6")


def test_checkpoints_of_both_kinds_rotate(tmp_path: Path) -> None:
    """What is being written is none, and a former one stands in until the new one has its name."""
    checkpoints = Checkpoints(tmp_path, 2)
    write_parts(tmp_path / "step-00000001", 2, 1)
    checkpoints.save(2, state(2))
    write_parts(tmp_path / ".step-00000003.part", 2, 3)
    assert list(checkpoints.paths()) == [1, 2]
    checkpoints.save(4, state(4))
    assert list(checkpoints.paths()) == [2, 4]
    assert not (tmp_path / "step-00000001").exists()
    rename(tmp_path / ".step-00000003.part", tmp_path / "step-00000003")
    assert list(checkpoints.paths()) == [2, 3, 4]
    (tmp_path / "step-00000003").rename(tmp_path / "step-00000003.former")  # and killed
    assert checkpoints.paths()[3].name == "step-00000003.former"
    write_parts(tmp_path / ".step-00000003.part", 2, 3)
    rename(tmp_path / ".step-00000003.part", tmp_path / "step-00000003")
    assert checkpoints.paths()[3].name == "step-00000003"
    assert not list(tmp_path.glob("*.former"))
