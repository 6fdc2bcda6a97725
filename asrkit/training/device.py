"""The device on which a process of a training computes."""

import os

import torch

from asrkit.errors import UserError
from asrkit.runtime.load import known_device

AUTO, CPU, CUDA = "auto", "cpu", "cuda"  # of training.device, and CUDA:N


def chosen_device(asked: str) -> tuple[torch.device, str]:
    """The device that training.device asks for, and a text that says which and why.

    Under torchrun each process of a machine has a GPU of its own.

    Raises:
        UserError: if there is no such device, or there are more processes than GPUs.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    reason = f"training.device is {asked}"
    if asked == CPU:
        return torch.device(CPU), f"{CPU}: {reason}"
    if asked == AUTO and not count:
        return torch.device(CPU), f"{CPU}: {reason}, and torch {torch.__version__} finds no GPU"
    device = gpu(asked, count)
    return device, f"{device}, {torch.cuda.get_device_name(device)}: {reason}"


def gpu(asked: str, count: int) -> torch.device:
    """This process's GPU of the `count` that torch finds on this machine.

    Raises:
        UserError: if it has none.
    """
    if not count:
        raise UserError(
            f"training.device is {asked}, but torch {torch.__version__} finds no GPU: install a "
            "torch for CUDA and the driver, check CUDA_VISIBLE_DEVICES, or set training.device=cpu"
        )
    local = int(os.environ.get("LOCAL_RANK", "0"))
    _, _, number = asked.partition(":")
    if number and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1:
        raise UserError(
            f"training.device is {asked}, one GPU for several processes: training.device=cuda "
            "gives each its own, and CUDA_VISIBLE_DEVICES says which they share out"
        )
    if not number and local >= count:
        raise UserError(
            f"process {local + 1} of this machine has no GPU of its own, torch finds {count}: "
            f"start {count} with --nproc-per-node, or set training.device=cpu"
        )
    try:
        return known_device(f"{CUDA}:{number or local}")
    except UserError as error:
        raise UserError(f"training.device: {error}") from None
