"""Files of a training: checkpoints to resume from, weights of epochs to average."""

import logging
import shutil
import textwrap
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import pydantic
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from asrkit.atomic_write import replacing
from asrkit.model_file import ModelFileError, read_tensors, write_tensors
from asrkit.training.checkpoint_parts import TrainingCheckpointError, read_parts
from asrkit.training.optimizer import OptimizerState, mismatch

logger = logging.getLogger(__name__)

Found = TypeVar("Found")
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0.0)]


class Progress(NamedTuple):
    """The position in a training: its state besides weights and optimisers."""

    epoch: Count = 0  # current epoch, from 0
    batch: Count = 0  # next batch of the epoch, over all ranks
    step: Count = 0  # optimiser steps done
    seconds: Seconds = 0.0  # audio of this epoch that was trained on


class Checkpoint(BaseModel):
    """The contents of a checkpoint; the hashes of `resuming.identity` are extra fields."""

    model_config = ConfigDict(strict=True, arbitrary_types_allowed=True, extra="allow")

    weights: dict[str, Tensor]
    optimizers: list[OptimizerState]
    progress: Progress
    history: dict[int, dict[str, float]]  # epoch -> WER by chunk size
    wall_seconds: Seconds = 0.0
    config: dict[str, Any] | None = None  # None in checkpoints of older versions
    ranks: Annotated[int, Field(ge=1)] = 1


class Checkpoints:
    """The newest checkpoints of a training in a folder, each written atomically.

    Args:
        folder: made if missing.
        keep: number of checkpoints.

    Attributes:
        by_all: all ranks of a run have to call `save`, not the first alone.
        mesh: of the ranks that the tensors are spread over when they are read, if any.
    """

    by_all = False
    mesh: DeviceMesh | None = None

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write a step's checkpoint; delete old ones, and later ones that were not usable."""
        path = self.folder / f"step-{step:08d}.pt"
        # Into an open file: given a path, torch reports a full disk in terms of its format.
        with replacing(path) as temporary, temporary.open("wb") as file:
            torch.save(state, file)
        self.rotate(step)

    def wait(self) -> None:
        """Return when all that was saved is written."""

    def rotate(self, step: int) -> None:
        """Delete all checkpoints but the newest up to this step."""
        paths = self.paths()
        kept = [number for number in paths if number <= step][-self.keep :]
        for number in paths.keys() - kept:
            remove(paths[number])

    def newest(self, use: Callable[[Checkpoint], Found]) -> Found | None:
        """The result of `use` for the newest usable checkpoint; None if the folder has none.

        Args:
            use: raises TrainingCheckpointError for a checkpoint that is not usable; then the one
                before is tried.

        Raises:
            TrainingCheckpointError: if there are checkpoints, but none is usable.
        """
        paths = self.paths()
        for path in reversed(paths.values()):
            try:
                return use(read_checkpoint(path, self.mesh))
            except TrainingCheckpointError as error:
                logger.warning("cannot resume from %s: %s", path, error)
                problem = f"{path}: {error}"
        if paths:
            raise TrainingCheckpointError(
                f"--resume: no checkpoint can be used; the last tried, {problem}"
            )
        return None

    def paths(self) -> dict[int, Path]:
        """The checkpoints by step: files, and folders of several ranks' parts."""
        # A folder is a former one while the new one of the same step takes its name.
        former, files, folders = (numbered(self.folder, "step-", e) for e in (".former", ".pt", ""))
        return dict(sorted((former | files | folders).items()))


def remove(path: Path) -> None:
    """Delete a checkpoint; a folder never keeps its name while it is half deleted."""
    if path.is_dir():
        shutil.rmtree(path.rename(path.with_name(f".{path.name}.part")))
    else:
        path.unlink()


def numbered(folder: Path, before: str, after: str) -> dict[int, Path]:
    """The files of a folder named `before`, a number, `after`: by number, in its order."""
    names = {
        path.name.removeprefix(before).removesuffix(after): path
        for path in folder.glob(f"{before}*{after}")
    }
    return dict(sorted((int(n), path) for n, path in names.items() if n.isdecimal()))


def read_checkpoint(path: Path, mesh: DeviceMesh | None = None) -> Checkpoint:
    """The checkpoint in a file or a folder, after comparing checksums.

    Args:
        path: of the file or folder.
        mesh: of ranks that the tensors of a folder are spread over; None for whole ones.

    Raises:
        TrainingCheckpointError: if it is damaged or of another kind.
    """
    try:
        state = read_file(path) if path.suffix == ".pt" else read_parts(path, mesh)
        return Checkpoint.model_validate(state)
    except TrainingCheckpointError:
        raise
    except ModelFileError as error:
        raise TrainingCheckpointError(str(error)) from None
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        reason = f"{key!r:.80}: {first['msg']}" if key else first["msg"]
        raise TrainingCheckpointError(f"it is no checkpoint of a training: {reason}") from None
    except Exception as error:  # zipfile, zlib, torch and its unpickler raise many types
        reason = textwrap.shorten(repr(error), 120, placeholder=" …")
        raise TrainingCheckpointError(f"it is damaged or no checkpoint: {reason}") from None


def read_file(path: Path) -> dict[str, Any]:
    """The state in a file, after comparing its checksums."""
    if not path.stat().st_size:
        raise TrainingCheckpointError("it is empty")
    with zipfile.ZipFile(path) as records:  # torch.save's format; it compresses nothing
        if any(record.compress_type for record in records.infolist()):
            raise TrainingCheckpointError("it is another kind of .zip file")
        damaged = records.testzip()
    if damaged is not None:
        raise TrainingCheckpointError(f"it is damaged: wrong checksum of {damaged!r} in it")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def check_fit(
    found: Checkpoint, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """Compare a checkpoint's names, types and shapes with those of a model and its optimisers.

    Raises:
        TrainingCheckpointError: if one differs.
    """
    reason = difference(found.weights, model.state_dict())
    if reason is None and len(found.optimizers) != len(optimizers):
        reason = f"{len(found.optimizers)} optimisers where there are {len(optimizers)}"
    for optimizer, state in zip(optimizers, found.optimizers, strict=False):
        reason = reason or mismatch(optimizer, state)
    if reason is not None:
        raise TrainingCheckpointError(f"it does not fit this training: {reason}")


def difference(tensors: dict[str, Tensor], others: dict[str, Tensor]) -> str | None:
    """The first difference in names, types or shapes, as text, or None."""
    here, there = ({n: f"{t.dtype} {tuple(t.shape)}" for n, t in of.items()}
                   for of in (tensors, others))  # fmt: skip
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            has, expected = here.get(name, "missing"), there.get(name, "not in the model")
            return f"{name!r:.80} is {has}, expected {expected}"
    return None


class EpochWeights:
    """Weights of the last or the best epochs, and their average.

    Args:
        folder: made if missing; epoch-0013.safetensors is the log's epoch 13, here number 12.
        keep: number of epochs.
        best: keep those with the lowest scores, rather than the last.
    """

    def __init__(self, folder: Path, keep: int, best: bool) -> None:
        self.folder, self.keep, self.best = folder, keep, best
        for number, path in reversed(numbered(folder, "epoch-", ".safetensors").items()):
            with suppress(ModelFileError):
                if "epoch" not in (read_tensors(path)[1] or {}):  # earlier versions began at 0
                    path.rename(self.file(number))

    def save(self, epoch: int, weights: dict[str, Tensor], scores: dict[int, float]) -> None:
        """Write an epoch's weights; delete those not chosen by the `scores` of all epochs so far.

        Later epochs, left from a checkpoint that was not usable, are deleted too.
        """
        tensors = {name: t.cpu().contiguous() for name, t in weights.items()}
        write_tensors(self.file(epoch), tensors, {"epoch": epoch + 1})
        paths = self.paths()
        kept = self.chosen(scores, [number for number in paths if number <= epoch])
        for number in paths.keys() - kept:
            paths[number].unlink()

    def average(self, model: nn.Module, epochs: list[int]) -> tuple[dict[str, Tensor], list[int]]:
        """Return the mean of the epochs' weights, computed in float64, and these epochs.

        Epochs whose files are damaged are left out with a warning.

        Raises:
            TrainingCheckpointError: if no epoch is left.
        """
        paths, expected = self.paths(), model.state_dict()
        files: dict[int, dict[str, Tensor]] = {}
        for epoch in epochs:
            try:
                tensors, _ = read_tensors(paths[epoch])
                reason = difference(tensors, expected)
                if reason is not None:
                    raise ModelFileError(f"{paths[epoch]} does not fit this training: {reason}")
                files[epoch] = tensors
            except ModelFileError as error:
                logger.warning("epoch %d is left out of the average: %s", epoch + 1, error)
        if not files:
            raise TrainingCheckpointError(
                f"{self.folder} has no weights of an epoch that can be used"
            )
        average = {
            name: torch.stack([file[name].double() for file in files.values()]).mean(0).to(t.dtype)
            for name, t in expected.items()
        }
        return average, list(files)

    def chosen(self, scores: dict[int, float], epochs: list[int] | None = None) -> list[int]:
        """Return the last or the best of these epochs, by default of all that are there."""
        epochs = list(self.paths()) if epochs is None else epochs
        if not self.best:
            return epochs[-self.keep :]
        scored = [epoch for epoch in epochs if epoch in scores]
        return sorted(scored, key=lambda epoch: scores[epoch])[: self.keep] or epochs[-1:]

    def paths(self) -> dict[int, Path]:
        """The files by epoch."""
        files = numbered(self.folder, "epoch-", ".safetensors")
        return {number - 1: path for number, path in files.items()}

    def file(self, epoch: int) -> Path:
        """Return the path of an epoch's weights."""
        return self.folder / f"epoch-{epoch + 1:04d}.safetensors"
