"""Writer of a sharded model's checkpoints, in a thread beside the training."""

import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from asrkit.atomic_write import flush
from asrkit.model_file import write_tensors
from asrkit.training.checkpoint_parts import TrainingCheckpointError, part_name, part_of
from asrkit.training.checkpoints import Checkpoints
from asrkit.training.distributed import Ranks


class SpreadCheckpoints(Checkpoints):
    """Checkpoints of a sharded model: every rank writes its rows, in a thread.

    A checkpoint is a folder, which gets its final name when all files are on the disk.

    Args:
        folder: folder that all ranks see, created if missing.
        ranks: ranks of the run; all must create this object, and call `save` and `wait`.
    """

    by_all = True

    def __init__(self, folder: Path, keep: int, ranks: Ranks) -> None:
        super().__init__(folder, keep)
        self.ranks, self.mesh = ranks, ranks.mesh
        self.group = dist.new_group(backend="gloo")  # for the threads; the training has its own
        self.thread = ThreadPoolExecutor(1)
        self.writing: Future[None] | None = None

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Wait for the previous checkpoint, then start to write a step's checkpoint.

        Raises:
            OSError: if the previous checkpoint could not be written.
            TrainingCheckpointError: if another rank could not write the previous checkpoint.
        """
        self.wait()
        tensors, header = part_of(state, self.ranks.rank)
        self.writing = self.thread.submit(self.write, step, tensors, header)

    def wait(self) -> None:
        """Wait until the last checkpoint is written; raise the same errors as `save`."""
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.result()

    def write(self, step: int, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
        """Write this rank's part; the first rank renames the folder when all parts are written."""
        temporary = self.folder / f".step-{step:08d}.part"
        part = temporary / part_name(self.ranks.rank, self.ranks.size)

        def clear() -> None:
            if self.ranks.is_first:
                for left in self.folder.glob(".step-*.part"):  # from killed processes
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
        """Run `action` on all ranks, wait for all, and raise an error on all if one fails."""
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
            raise TrainingCheckpointError(
                "a checkpoint was not written: see another process's error"
            )


def rename(temporary: Path, path: Path) -> None:
    """Rename a folder; an existing folder of this name is deleted after the renaming."""
    former = path.with_suffix(".former")
    if path.exists():
        shutil.rmtree(former, ignore_errors=True)
        path.rename(former)
    temporary.rename(path)
    flush(path.parent)
    shutil.rmtree(former, ignore_errors=True)
