"""TorchScript: a file that needs only torch."""

import io
from pathlib import Path

import torch
from torch import nn

from asrkit.backends.export_metadata import Exported, describe
from asrkit.backends.torchscript import DESCRIPTION, script, unwarned
from asrkit.model_file import ModelFile


def write(module: nn.Module, path: str | Path, exported: Exported, file: ModelFile) -> None:
    """Script a module and write it, with a description for programs that use it."""
    extra = {DESCRIPTION: describe(exported, file)}
    scripted = script(module)
    archive = io.BytesIO()  # torch's errors for a full disk name neither disk nor file
    with unwarned():
        torch.jit.save(scripted, archive, _extra_files=extra)
    Path(path).write_bytes(archive.getbuffer())
