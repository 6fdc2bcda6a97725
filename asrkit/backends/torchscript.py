"""The network as TorchScript, and the files of it that `asrkit export` wrote.

As a backend it earns its place where ONNX Runtime is not installed: it needs nothing but torch, and
a chunk takes it a sixth less time than eager.
"""

import warnings
from pathlib import Path

import torch
from torch import nn

from asrkit.backends.backend import Backend
from asrkit.backends.export_metadata import KEY, Exported, described
from asrkit.errors import UserError, reason, shown
from asrkit.model import NetworkStep
from asrkit.model_file import ModelFile

DESCRIPTION = f"{KEY}.json"  # the file in the archive that says what it holds


def build(file: ModelFile, plain: Backend) -> Backend:
    """The network scripted and frozen, for the context of the eager backend."""
    step = NetworkStep(file.model, plain.spec.context).eval()
    frozen = torch.jit.freeze(script(step), preserved_attrs=["init_state"])
    return plain._replace(kind="torchscript", init_state=frozen.init_state, step=frozen)


def script(module: nn.Module) -> torch.jit.ScriptModule:
    """A module as TorchScript."""
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
