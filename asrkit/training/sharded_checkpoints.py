"""Writing the checkpoints of a model that is spread over ranks, beside the training."""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from asrkit.model_file import write_tensors
from asrkit.training.checkpoint_parts import TrainingCheckpointError, part_name, part_of
from asrkit.training.checkpoints import Checkpoints
from asrkit.training.distributed import Ranks


class SpreadCheckpoints(Checkpoints):
    """As `Checkpoints`, of a model that is spread: every rank writes its rows, beside the training.

    A checkpoint is a folder that gets its name when all of it is on the disk.

    Args:
        folder: seen by all ranks, made if missing.
        keep: number of checkpoints.
        ranks: all of which have to make this, and to call `save` and `wait`.
    """

    by_all = True

    def __init__(self, folder: Path, keep: int, ranks: Ranks) -> None:
        super().__init__(folder, keep)
        self.ranks, self.mesh = ranks, ranks.mesh
        self.group = dist.new_group(backend="gloo")  # of the threads, beside the training's own
        self.thread = ThreadPoolExecutor(1)
        self.writing: Future[None] | None = None

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Begin to write a step's checkpoint, when the one before it is written.

        Raises:
            OSError: if the one before could not be written.
            TrainingCheckpointError: if another rank could not write the one before.
        """
        self.wait()
        tensors, header = part_of(state, self.ranks.rank)
        self.writing = self.thread.submit(self.write, step, tensors, header)

    def wait(self) -> None:
        """Return when the last checkpoint is written; raises as `save` does."""
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.result()

    def write(self, step: int, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
        """Write this rank's part; when all have, the first gives the folder its name."""
        temporary = self.folder / f".step-{step:08d}.part"
        part = temporary / part_name(self.ranks.rank, self.ranks.size)

        def clear() -> None:
            if self.ranks.is_first:
                for left in self.folder.glob(".step-*.part"):  # of processes that were killed
                    shutil.rmtree(left)

        def fill() -> None:
            write_tensors(part, tensors, header)
            flush(part)
            flush(temporary)

        def publish() -> None:
            if self.ranks.is_first:
                rename(temporary, self.folder / f"step-{step:08d}")
                self.rotate(step)

        for action in (clear, fill, publish):
            self.together(action)

    def together(self, action: Callable[[], None]) -> None:
        """Do it on all ranks, and return when all have; one's failure ends it on all."""
        problem = None
        try:
            action()
        except Exception as error:
            problem = error
        failures = torch.tensor(int(problem is not None))
        dist.all_reduce(failures, group=self.group)
        if problem is not None:
            raise problem
        if failures:
            raise TrainingCheckpointError("a checkpoint was not written: another process says why")


def rename(temporary: Path, path: Path) -> None:
    """Give a folder its name; the one that has it goes when the new one is there."""
    former = path.with_suffix(".former")
    if path.exists():
        shutil.rmtree(former, ignore_errors=True)
        path.rename(former)
    temporary.rename(path)
    flush(path.parent)
    shutil.rmtree(former, ignore_errors=True)


def flush(path: Path) -> None:
    """Wait until a file's contents, or the names in a folder, are on the disk."""
    if path.is_dir() and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
