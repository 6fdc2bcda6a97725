"""TorchScript: a file of the encoder, which only torch runs; asrkit compares it."""

import io
from pathlib import Path

import torch
from torch import nn

from asrkit.backends.export_metadata import KEY, Exported, described
from asrkit.backends.pytorch import unwarned
from asrkit.export.description import describe
from asrkit.model_file import ModelFile

DESCRIPTION = f"{KEY}.json"  # file in the archive with the description


def script(module: nn.Module) -> torch.jit.ScriptModule:
    """Script a module."""
    with unwarned():
        return torch.jit.script(module)


def write(module: nn.Module, path: str | Path, exported: Exported, file: ModelFile) -> None:
    """Script a module and write it, with a description for programs that use it."""
    extra = {DESCRIPTION: describe(exported, file)}
    scripted = script(module)
    archive = io.BytesIO()  # torch's errors for a full disk name neither disk nor file
    with unwarned():
        torch.jit.save(scripted, archive, _extra_files=extra)
    Path(path).write_bytes(archive.getbuffer())


def read(path: str | Path) -> tuple[torch.jit.ScriptModule, Exported]:
    """Return the module and its description. Read only trusted files: TorchScript is code."""
    extra = {DESCRIPTION: ""}
    with unwarned():
        module = torch.jit.load(str(path), map_location="cpu", _extra_files=extra)
    return module, described(extra[DESCRIPTION]).exported
