"""Files that `asrkit export` wrote for TorchScript, and the network as TorchScript."""

import warnings
from pathlib import Path

import torch
from torch import nn

from asrkit.backends.description import KEY, Exported, described
from asrkit.errors import UserError, reason, shown

DESCRIPTION = f"{KEY}.json"  # the file in the archive that says what it holds


def script(module: nn.Module) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():  # torch announces the end of TorchScript at every call
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(module)


def read(path: str | Path) -> tuple[torch.jit.ScriptModule, Exported]:
    """The module and what it is. Only for files one trusts: TorchScript is code.

    Raises:
        UserError: if it is not a file that `write` wrote.
    """
    extra = {DESCRIPTION: ""}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            module = torch.jit.load(str(path), map_location="cpu", _extra_files=extra)
        exported = described(extra[DESCRIPTION]).exported
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"{shown(Path(path))} is not a file that asrkit export wrote: {reason(error)}"
        ) from None
    return module, exported
