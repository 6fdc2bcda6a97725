"""The device of a training process."""

import os

import torch

from asrkit.errors import UserError
from asrkit.runtime.load import known_device

AUTO, CPU, CUDA = "auto", "cpu", "cuda"  # values of training.device; also cuda:N


def chosen_device(asked: str) -> tuple[torch.device, str]:
    """Return the device for training.device, and a text with the device and the reason.

    Under torchrun each process of a machine has its own GPU.
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
    """Return this process's GPU among the `count` GPUs that torch finds on this machine."""
    if not count:
        raise UserError(
            f"training.device is {asked}, but torch {torch.__version__} finds no GPU: install a "
            "torch for CUDA and the driver, check CUDA_VISIBLE_DEVICES, or set training.device=cpu"
        )
    local = int(os.environ.get("LOCAL_RANK", "0"))
    _, _, number = asked.partition(":")
    if number and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1:
        raise UserError(
            f"training.device is {asked}, one GPU for several processes: set training.device=cuda "
            "for one GPU per process, and choose the GPUs with CUDA_VISIBLE_DEVICES"
        )
    if not number and local >= count:
        raise UserError(
            f"process {local + 1} of this machine has no GPU; torch finds {count}: start {count} "
            "processes with --nproc-per-node, or set training.device=cpu"
        )
    try:
        return known_device(f"{CUDA}:{number or local}")
    except UserError as error:
        raise UserError(f"training.device: {error}") from None
