"""What training leaves on disk: checkpoints to resume from, weights of epochs to average."""

import logging
import textwrap
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import pydantic
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from asrkit.errors import UserError
from asrkit.files import replacing
from asrkit.model_file import ModelFileError, read_tensors, write_tensors
from asrkit.training.optimizer import OptimizerState, why_not_of

logger = logging.getLogger(__name__)

Found = TypeVar("Found")
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0.0)]


class CheckpointError(UserError):
    """A checkpoint that cannot be resumed from; the message says why."""


class Progress(NamedTuple):
    """Where training stands; all of it that is not weights or optimiser."""

    epoch: Count = 0  # being trained
    batch: Count = 0  # next batch of the epoch, over all ranks
    step: Count = 0  # optimiser steps done
    seconds: Seconds = 0.0  # of this epoch's audio consumed


class Checkpoint(BaseModel):
    """What a checkpoint holds, beside each part of `resuming.identity` by its name."""

    model_config = ConfigDict(strict=True, arbitrary_types_allowed=True, extra="allow")

    weights: dict[str, Tensor]
    optimizers: list[OptimizerState]
    progress: Progress
    history: dict[int, dict[str, float]]  # epoch -> WER by chunk size
    wall_seconds: Seconds = 0.0
    config: dict[str, Any] | None = None  # none in those of older versions
    ranks: Annotated[int, Field(ge=1)] = 1


class Checkpoints:
    """The newest few training checkpoints of a folder, each written atomically.

    Args:
        folder: made if missing.
        keep: how many.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write the checkpoint of a step; later ones, which could not be resumed from, go."""
        path = self.folder / f"step-{step:08d}.pt"
        # A file of Python's, for torch's own tells of a full disk in terms of its format.
        with replacing(path) as temporary, temporary.open("wb") as file:
            torch.save(state, file)
        paths = self.paths()
        kept = [number for number in paths if number <= step][-self.keep :]
        for number in paths.keys() - kept:
            paths[number].unlink()

    def newest(self, use: Callable[[Checkpoint], Found]) -> Found | None:
        """What `use` makes of the newest checkpoint that it can; None if there is none at all.

        Args:
            use: raises CheckpointError for one that it cannot. Then the one before it is tried.

        Raises:
            CheckpointError: if there are some, but none can be used.
        """
        paths = self.paths()
        for path in reversed(paths.values()):
            try:
                return use(read_checkpoint(path))
            except CheckpointError as error:
                logger.warning("cannot resume from %s: %s", path, error)
                problem = f"{path}: {error}"
        if paths:
            raise CheckpointError(f"--resume: no checkpoint can be used; the last tried, {problem}")
        return None

    def paths(self) -> dict[int, Path]:
        """By step."""
        return numbered(self.folder, "step-", ".pt")


def numbered(folder: Path, before: str, after: str) -> dict[int, Path]:
    """The files of a folder whose names have a number between these, by number."""
    names = {
        path.name.removeprefix(before).removesuffix(after): path
        for path in folder.glob(f"{before}*{after}")
    }
    return dict(sorted((int(n), path) for n, path in names.items() if n.isdecimal()))


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a file, none of whose bytes has changed since it was written.

    Raises:
        CheckpointError: if it is damaged or of another kind.
    """
    try:
        if not path.stat().st_size:
            raise CheckpointError("it is empty")
        with zipfile.ZipFile(path) as records:  # torch.save's format; it compresses nothing
            if any(record.compress_type for record in records.infolist()):
                raise CheckpointError("it is another kind of .zip file")
            damaged = records.testzip()
        if damaged is not None:
            raise CheckpointError(f"it is damaged: wrong checksum of {damaged!r} in it")
        state = torch.load(path, map_location="cpu", weights_only=True)
        return Checkpoint.model_validate(state)
    except CheckpointError:
        raise
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        reason = f"{key!r:.80}: {first['msg']}" if key else first["msg"]
        raise CheckpointError(f"it is no checkpoint of a training: {reason}") from None
    except Exception as error:  # zipfile, zlib, torch and its unpickler raise a dozen types
        reason = textwrap.shorten(repr(error), 120, placeholder=" …")
        raise CheckpointError(f"it is damaged or no checkpoint: {reason}") from None


def check_fit(
    found: Checkpoint, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """Compare names, types and shapes with what would be changed.

    Raises:
        CheckpointError: if something does not fit.
    """
    reason = why_unlike(found.weights, model.state_dict())
    if reason is None and len(found.optimizers) != len(optimizers):
        reason = f"{len(found.optimizers)} optimisers where there are {len(optimizers)}"
    for optimizer, state in zip(optimizers, found.optimizers, strict=False):
        reason = reason or why_not_of(optimizer, state)
    if reason is not None:
        raise CheckpointError(f"it does not fit this training: {reason}")


def why_unlike(tensors: dict[str, Tensor], others: dict[str, Tensor]) -> str | None:
    """The first name whose type or shape differs, or None."""
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
        folder: made if missing.
        keep: how many epochs.
        best: keep those of the lowest score; else the last.
    """

    def __init__(self, folder: Path, keep: int, best: bool) -> None:
        self.folder, self.keep, self.best = folder, keep, best

    def save(self, epoch: int, weights: dict[str, Tensor], scores: dict[int, float]) -> None:
        """Write an epoch's weights; `scores` of all epochs so far say which ones stay.

        Those of later epochs, from before a checkpoint that could not be resumed from, go.
        """
        tensors = {name: t.cpu().contiguous() for name, t in weights.items()}
        write_tensors(self.folder / f"epoch-{epoch:04d}.safetensors", tensors, {})
        paths = self.paths()
        kept = self.chosen([number for number in paths if number <= epoch], scores)
        for number in paths.keys() - kept:
            paths[number].unlink()

    def average(
        self, model: nn.Module, scores: dict[int, float]
    ) -> tuple[dict[str, Tensor], list[int]]:
        """Mean of the chosen epochs' weights of a model, summed in float64, and those epochs.

        One whose file is damaged is left out, which is logged.

        Raises:
            CheckpointError: if none is left.
        """
        paths, expected = self.paths(), model.state_dict()
        files: dict[int, dict[str, Tensor]] = {}
        for epoch in self.chosen(list(paths), scores):
            try:
                tensors, _ = read_tensors(paths[epoch])
                reason = why_unlike(tensors, expected)
                if reason is not None:
                    raise ModelFileError(f"{paths[epoch]} does not fit this training: {reason}")
                files[epoch] = tensors
            except ModelFileError as error:
                logger.warning("epoch %d is left out of the average: %s", epoch + 1, error)
        if not files:
            raise CheckpointError(f"{self.folder} has no weights of an epoch that can be used")
        average = {
            name: torch.stack([file[name].double() for file in files.values()]).mean(0).to(t.dtype)
            for name, t in expected.items()
        }
        return average, list(files)

    def chosen(self, epochs: list[int], scores: dict[int, float]) -> list[int]:
        if not self.best:
            return epochs[-self.keep :]
        scored = [epoch for epoch in epochs if epoch in scores]
        return sorted(scored, key=lambda epoch: scores[epoch])[: self.keep] or epochs[-1:]

    def paths(self) -> dict[int, Path]:
        """By epoch."""
        return numbered(self.folder, "epoch-", ".safetensors")
