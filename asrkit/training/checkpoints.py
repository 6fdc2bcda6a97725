"""Files of a training run: checkpoints to resume from, weights of epochs to average."""

import logging
import textwrap
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import pydantic
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from asrkit.atomic_write import replacing, sweep
from asrkit.errors import UserError
from asrkit.model_contents import ModelFileError
from asrkit.model_tensors import read_tensors, write_tensors

logger = logging.getLogger(__name__)

Used = TypeVar("Used")
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0.0)]


class TrainingCheckpointError(UserError):
    """An error in writing a checkpoint or resuming from it; the message has the reason."""


class Progress(NamedTuple):
    """The position in a training run: its state without weights and optimisers."""

    epoch: Count = 0  # current epoch, from 0
    batch: Count = 0  # next batch of the epoch, over all ranks
    step: Count = 0  # optimiser steps done
    seconds: Seconds = 0.0  # audio of this epoch that was trained on


class Checkpoint(BaseModel):
    """The contents of a checkpoint."""

    model_config = ConfigDict(strict=True, arbitrary_types_allowed=True)

    weights: dict[str, Tensor]
    optimizers: list[dict[str, Any]]
    progress: Progress
    history: dict[int, dict[str, float]]  # epoch -> error rate by chunk size
    wall_seconds: Seconds = 0.0
    config: dict[str, Any]
    identity: dict[str, str] = {}  # of the corpus; empty in earlier versions
    tokenizer: str | None = Field(None, alias="the tokenizer")  # hash, in earlier versions
    ranks: Annotated[int, Field(ge=1)] = 1


@dataclass(eq=False)
class Checkpoints:
    """The two newest checkpoints of a training run in a folder, each written atomically."""

    folder: Path

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write a step's checkpoint; delete old ones, and later ones, which were unusable."""
        path = self.folder / f"step-{step:08d}.pt"
        sweep(self.folder)
        # An open file: with a path, torch's error for a full disk does not mention the disk.
        with replacing(path) as temporary, temporary.open("wb") as file:
            try:
                torch.save(state, file)
            except RuntimeError as error:  # torch could not end the archive either
                raise error.__context__ or error from None
        keep_only(self.paths(), [number for number in self.paths() if number <= step][-2:])

    def newest(self, use: Callable[[Checkpoint], Used]) -> Used | None:
        """Return the result of `use` for the newest usable checkpoint; None for an empty folder.

        Args:
            use: function that raises TrainingCheckpointError for an unusable checkpoint; then the
                previous checkpoint is tried.

        Raises:
            TrainingCheckpointError: if the folder has checkpoints but all are unusable.
        """
        paths = self.paths()
        for path in reversed(paths.values()):
            try:
                return use(read_checkpoint(path))
            except TrainingCheckpointError as error:
                logger.warning("cannot resume from %s: %s", path, error)
                problem = f"{path}: {error}"
        if paths:
            raise TrainingCheckpointError(
                f"--resume: none of {len(paths)} checkpoints can be used; the oldest, {problem}"
            )
        return None

    def paths(self) -> dict[int, Path]:
        """Return the checkpoints by step."""
        return numbered(self.folder, "step-", ".pt")


def numbered(folder: Path, before: str, after: str) -> dict[int, Path]:
    """Return a folder's files named `before`, a number, `after`, sorted by the number."""
    names = {
        path.name.removeprefix(before).removesuffix(after): path
        for path in folder.glob(f"{before}*{after}")
    }
    return dict(sorted((int(n), path) for n, path in names.items() if n.isdecimal()))


def keep_only(paths: Mapping[int, Path], numbers: Sequence[int]) -> None:
    """Delete the files except those of these numbers."""
    for number in paths.keys() - numbers:
        paths[number].unlink()


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, and compare its checksums.

    Raises:
        TrainingCheckpointError: if the file is damaged or not a checkpoint.
    """
    try:
        with zipfile.ZipFile(path) as records:  # torch.save's format
            damaged = records.testzip()
        if damaged is not None:
            raise TrainingCheckpointError(f"damaged: wrong checksum of its entry {damaged!r}")
        return Checkpoint.model_validate(torch.load(path, map_location="cpu", weights_only=True))
    except TrainingCheckpointError:
        raise
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        reason = f"{key!r:.80}: {first['msg']}" if key else first["msg"]
        raise TrainingCheckpointError(f"not a training checkpoint: {reason}") from None
    except Exception as error:  # zipfile, zlib, torch and its unpickler raise many types
        reason = textwrap.shorten(repr(error), 120, placeholder=" …")
        raise TrainingCheckpointError(f"damaged, or not a checkpoint: {reason}") from None


def check_fit(
    stored: Checkpoint, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """Compare a checkpoint's names, types and shapes with those of a model.

    The states of optimisers fit if the weights do, and the settings that `check_same` compares.

    Raises:
        TrainingCheckpointError: if anything differs.
    """
    reason = difference(stored.weights, model.state_dict())
    if reason is None and len(stored.optimizers) != len(optimizers):
        reason = f"it has {len(stored.optimizers)} optimisers, expected {len(optimizers)}"
    if reason is not None:
        raise TrainingCheckpointError(f"does not fit this model and optimiser: {reason}")


def difference(tensors: dict[str, Tensor], wanted: dict[str, Tensor]) -> str | None:
    """Describe the first difference in names, types or shapes, or return None."""
    kinds = ({n: f"{t.dtype} {tuple(t.shape)}" for n, t in part.items()}
             for part in (tensors, wanted))  # fmt: skip
    for name, kind, expected in sorted(different(*kinds)):
        return f"{name!r:.80} is {kind or 'missing'}, expected {expected or 'not in the model'}"
    return None


def different(here: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the keys with different values and both values; None for a missing one."""
    for key in dict.fromkeys([*here, *there]):
        if here.get(key) != there.get(key):
            yield key, here.get(key), there.get(key)


@dataclass(eq=False)
class EpochWeights:
    """Weights of the last epochs, and their average.

    Epoch 13 of the log, number 12 in this class, is epoch-0013.safetensors.
    """

    folder: Path  # created if missing
    keep: int  # number of epochs

    def save(self, epoch: int, weights: dict[str, Tensor]) -> None:
        """Write an epoch's weights; delete old ones, and later ones, which were unusable."""
        tensors = {name: t.cpu().contiguous() for name, t in weights.items()}
        path = self.folder / f"epoch-{epoch + 1:04d}.safetensors"
        sweep(self.folder)
        write_tensors(path, tensors, {"epoch": epoch + 1})
        paths = self.paths()
        keep_only(paths, [number for number in paths if number <= epoch][-self.keep :])

    def average(self, model: nn.Module) -> tuple[dict[str, Tensor], list[int]]:
        """Return the mean of the epochs' weights, computed in float64, and the epochs used.

        Epochs with damaged files are skipped with a warning.

        Raises:
            TrainingCheckpointError: if all files are damaged or missing.
        """
        paths, expected = self.paths(), model.state_dict()
        files: dict[int, dict[str, Tensor]] = {}
        for epoch in [*paths][-self.keep :]:
            try:
                tensors, _ = read_tensors(paths[epoch])
                if reason := difference(tensors, expected):
                    raise ModelFileError(f"{paths[epoch]} does not fit this model: {reason}")
                files[epoch] = tensors
            except ModelFileError as error:
                logger.warning("epoch %d is not averaged: %s", epoch + 1, error)
        if not files:
            raise TrainingCheckpointError(
                f"{self.folder} has no usable epoch-*.safetensors to average: train another epoch"
            )
        average = {
            name: torch.stack([file[name].double() for file in files.values()]).mean(0).to(t.dtype)
            for name, t in expected.items()
        }
        return average, list(files)

    def paths(self) -> dict[int, Path]:
        """Return the files by epoch."""
        files = numbered(self.folder, "epoch-", ".safetensors")
        return {number - 1: path for number, path in files.items()}
