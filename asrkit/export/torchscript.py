"""TorchScript: a file that only torch is needed to load."""

import io
import warnings
from pathlib import Path

import torch
from torch import nn

from asrkit.backends.export_metadata import Exported, describe
from asrkit.backends.torchscript import DESCRIPTION, script
from asrkit.model_file import ModelFile


def write(module: nn.Module, path: str | Path, exported: Exported, file: ModelFile) -> None:
    """Script a module and write it with what a program needs to use it."""
    extra = {DESCRIPTION: describe(exported, file)}
    scripted = script(module)
    archive = io.BytesIO()  # torch's own errors about a full disk name neither the disk nor a file
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(scripted, archive, _extra_files=extra)
    Path(path).write_bytes(archive.getbuffer())
