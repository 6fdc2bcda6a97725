"""TorchScript: a file that only torch is needed to load."""

import json
import warnings
from pathlib import Path

import torch
from torch import nn

from asrkit.checkpoint import ModelFile
from asrkit.errors import UserError
from asrkit.export.replay import Exported

DESCRIPTION = "asrkit.json"  # the file in the archive that says what it holds


def write(module: nn.Module, path: str | Path, exported: Exported, file: ModelFile) -> None:
    """Script a module and write it with what a program needs to use it."""
    tokenizer = file.tokenizer
    description = exported._asdict() | {
        "symbols": [tokenizer.piece(token) for token in range(1, tokenizer.vocab_size)],
        "config": file.config.model_dump(mode="json"),
    }
    with warnings.catch_warnings():  # torch announces the end of TorchScript at every call
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(module)
        torch.jit.save(scripted, str(path), _extra_files={DESCRIPTION: json.dumps(description)})


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
        description = json.loads(extra[DESCRIPTION])
        return module, Exported(*(description[name] for name in Exported._fields))
    except (RuntimeError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} is not a file that asrkit export wrote: {reason}") from None
