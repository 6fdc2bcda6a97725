"""The device of a training process, and the ranks of a run under torchrun, or a single rank."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from asrkit.backends.pytorch import known_device
from asrkit.errors import UserError

Value = TypeVar("Value")
AUTO, CPU, CUDA = "auto", "cpu", "cuda"  # values of training.device; also cuda:N


class Ranks:
    """This process's rank, its device and the collective operations.

    Processes that torchrun started join a process group.
    """

    def __init__(self, device: str = AUTO) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.device, self.where = chosen_device(device)
        cuda = self.device.type == CUDA
        if cuda:
            torch.cuda.set_device(self.device)
        if self.size > 1:
            # The timeout is long because the other ranks wait while the first loads the corpus.
            # gloo sums CPU tensors, without waiting for a GPU.
            backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
            dist.init_process_group(backend, timeout=timedelta(hours=3))

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def wrap(self, loss: nn.Module) -> nn.Module:
        """Move the loss to this rank's device, and average gradients over the ranks."""
        loss = loss.to(self.device)
        if self.size == 1:
            return loss
        # The buffers are the statistics of the features: equal on all ranks, and constant.
        return DistributedDataParallel(loss, broadcast_buffers=False)

    def no_sync(self, module: nn.Module) -> AbstractContextManager[None]:
        """Return a context without averaging of gradients, for all but a step's last batch."""
        if isinstance(module, DistributedDataParallel):
            return module.no_sync()
        return nullcontext()

    def sum(self, *values: float) -> list[float]:
        """Sum each value over the ranks, on the CPU."""
        if self.size == 1:
            return [float(value) for value in values]
        totals = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(totals)
        return totals.tolist()

    def from_first(self, make: Callable[[], Value]) -> Value:
        """Call `make` on the first rank; return its result or raise its UserError on all ranks."""
        made: list[Any] = [None]
        try:
            made = [make() if self.is_first else None]
        except UserError as error:
            made = [error]
        if self.size > 1:
            dist.broadcast_object_list(made)
        if isinstance(made[0], UserError):
            raise made[0]
        return made[0]

    def gather(self, items: list[Value]) -> list[Value]:
        """Return the items of all ranks, in the order of the ranks, on every rank."""
        if self.size == 1:
            return items
        lists: list[list[Value]] = [[] for _ in range(self.size)]
        dist.all_gather_object(lists, items)
        return [item for part in lists for item in part]

    def close(self) -> None:
        if self.size > 1:
            dist.destroy_process_group()


def chosen_device(wanted: str) -> tuple[torch.device, str]:
    """Return the device for training.device, and a text with the device and the reason.

    Under torchrun each process of a machine has its own GPU.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    reason = f"training.device is {wanted}"
    if wanted == AUTO and not count:
        reason += f", and torch {torch.__version__} finds no GPU"
    if wanted == CPU or (wanted == AUTO and not count):
        return torch.device(CPU), f"{CPU}: {reason}"
    device = gpu(wanted, count)
    return device, f"{device}, {torch.cuda.get_device_name(device)}: {reason}"


def gpu(wanted: str, count: int) -> torch.device:
    """Return this process's GPU among the `count` GPUs that torch finds on this machine."""
    if not count:
        raise UserError(
            f"training.device is {wanted}, but torch {torch.__version__} finds no GPU: install a "
            "torch for CUDA and the driver, check CUDA_VISIBLE_DEVICES, or set training.device=cpu"
        )
    local = int(os.environ.get("LOCAL_RANK", "0"))
    _, _, number = wanted.partition(":")
    gpus, processes = 1 if number else count, int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if processes > gpus:
        raise UserError(
            f"training.device is {wanted}, {gpus} GPUs for {processes} processes of this machine: "
            "start one process per GPU, and set training.device=cuda, or cpu"
        )
    try:
        return known_device(f"{CUDA}:{number or local}")
    except UserError as error:
        raise UserError(f"training.device: {error}") from None
