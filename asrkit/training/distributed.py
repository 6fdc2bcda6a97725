"""The ranks of a run under torchrun; one rank without it."""

import os
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Ranks:
    """What a rank needs to know of the others. Starts the process group when torchrun asks."""

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        cuda = torch.cuda.is_available()
        self.device = torch.device("cuda", local) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(self.device)
        if self.size > 1:
            # The others wait while the first prepares the corpus or validates.
            dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(hours=3))

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def wrap(self, module: nn.Module) -> nn.Module:
        return DistributedDataParallel(module) if self.size > 1 else module

    def no_sync(self, module: nn.Module) -> AbstractContextManager[None]:
        """Gradients stay on this rank: for all batches of a step but the last."""
        return module.no_sync() if self.size > 1 else nullcontext()  # type: ignore[operator]

    def sum(self, *values: float) -> list[float]:
        """Each value added up over the ranks."""
        totals = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.size > 1:
            dist.all_reduce(totals)
        return totals.tolist()

    def any(self, value: bool) -> bool:
        """Whether it is true on any rank."""
        return self.sum(value) != [0.0]

    def gather(self, items: list[str]) -> list[str]:
        """All ranks' items."""
        if self.size == 1:
            return items
        lists: list[list[str]] = [[] for _ in range(self.size)]
        dist.all_gather_object(lists, items)
        return [item for part in lists for item in part]

    def wait(self) -> None:
        """For all ranks to come here."""
        if self.size > 1:
            dist.barrier()

    def close(self) -> None:
        if self.size > 1:
            dist.destroy_process_group()
