"""Distributed training: the ranks of a run under torchrun, or a single one."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from asrkit.errors import UserError
from asrkit.training.device import AUTO, CUDA, chosen_device
from asrkit.training.fsdp import shard
from asrkit.training.loss import Loss

Value = TypeVar("Value")


class Ranks:
    """This process's rank, its device and the collective operations; torchrun's join a group.

    Args:
        device: training.device of the configuration.

    Raises:
        UserError: if torchrun would restart processes that do not find each other, or there is no
            such device.
    """

    def __init__(self, device: str = AUTO) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.device, self.where = chosen_device(device)
        cuda = self.device.type == CUDA
        if cuda:
            torch.cuda.set_device(self.device)
        if self.size > 1:
            check_restarts()
            # The others wait while the first prepares the corpus.
            # Numbers of the CPU are summed there: a GPU is not waited for.
            backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
            dist.init_process_group(backend, timeout=timedelta(hours=3))

    @cached_property
    def mesh(self) -> DeviceMesh:
        """The ranks as torch's tensors that are spread over them have it."""
        return init_device_mesh(self.device.type, (self.size,))

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def wrap(self, loss: Loss, parallel: str) -> nn.Module:
        """The loss on this rank's device, with gradients averaged over the ranks.

        Args:
            loss: changed in place.
            parallel: "ddp": each rank has the whole model. "fsdp": a share of it, see `sharded`.
        """
        if self.size > 1 and parallel == "fsdp":
            return shard(loss, self.mesh)
        loss = loss.to(self.device)
        if self.size == 1:
            return loss
        # The buffers are the features' statistics, which all ranks were given and none changes.
        return DistributedDataParallel(loss, broadcast_buffers=False)

    def no_sync(self, module: nn.Module) -> AbstractContextManager[None]:
        """A context without averaging gradients: for all batches of a step but the last.

        Gradients that are spread are averaged at each batch: whole ones may not fit.
        """
        if isinstance(module, DistributedDataParallel):
            return module.no_sync()
        return nullcontext()

    def sum(self, *values: float) -> list[float]:
        """The sum of each value over the ranks, on the CPU."""
        if self.size == 1:
            return [float(value) for value in values]
        totals = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(totals)
        return totals.tolist()

    def from_first(self, make: Callable[[], Value]) -> Value:
        """What the first rank makes, on all ranks; where it raises a UserError, so do all."""
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
        """The items of all ranks, in their order, on every rank."""
        if self.size == 1:
            return items
        lists: list[list[Value]] = [[] for _ in range(self.size)]
        dist.all_gather_object(lists, items)
        return [item for part in lists for item in part]

    def wait(self) -> None:
        """Block until all ranks have called this."""
        if self.size > 1:
            dist.barrier()

    def close(self) -> None:
        if self.size > 1:
            dist.destroy_process_group()


def check_restarts() -> None:
    """Raises UserError if torchrun would restart processes into the store of those that ended.

    There they read the addresses of the ended ones, and wait for them or fail: torch 2.11,
    github.com/pytorch/pytorch/issues/135712.
    """
    shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if shared and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
        raise UserError(
            "torchrun --max-restarts: restarted processes would look for those that have ended; "
            "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in torchrun's environment, and give it "
            "--standalone (one machine) or --rdzv-backend c10d"
        )
