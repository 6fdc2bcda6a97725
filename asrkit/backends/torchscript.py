"""The network as TorchScript, and the files of it that `asrkit export` wrote.

Use this backend where ONNX Runtime is not installed: it only needs torch, and a chunk takes a sixth
less time than with eager.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from asrkit.backends.backend import Backend
from asrkit.backends.export_metadata import KEY, Exported, described
from asrkit.backends.transducer import TransducerParts, part_steps
from asrkit.errors import UserError, reason, shown
from asrkit.model import NetworkStep, TransducerHead
from asrkit.model_file import ModelFile

DESCRIPTION = f"{KEY}.json"  # file in the archive with the description


def build(file: ModelFile, plain: Backend) -> Backend:
    """Return the network scripted and frozen, in the context of the eager backend."""
    step = NetworkStep(file.model, plain.spec.context).eval()
    frozen = torch.jit.freeze(script(step), preserved_attrs=["init_state"])
    backend = plain._replace(kind="torchscript", init_state=frozen.init_state, step=frozen)
    head = file.model.head
    if isinstance(head, TransducerHead):
        parts = (torch.jit.freeze(script(each)) for each in part_steps(head))
        return backend._replace(transducer=TransducerParts(head, *parts))
    return backend


@contextmanager
def unwarned() -> Iterator[None]:
    """A context manager without torch's warnings, at every call, that TorchScript will end."""
    with warnings.catch_warnings():  # as DeprecationWarning, from torch 2.14 on as FutureWarning
        warnings.filterwarnings("ignore", "`torch.jit")
        yield


def script(module: nn.Module) -> torch.jit.ScriptModule:
    """Script a module."""
    with unwarned():
        return torch.jit.script(module)


def parts_in(module: torch.jit.ScriptModule, head: TransducerHead) -> TransducerParts:
    """Return predictor and joiner of a file that `write` wrote for a transducer."""
    own = (module.step if hasattr(module, "step") else module).head
    return TransducerParts(
        head, own.advance, lambda frames, predicted: own.join(own.project(frames), predicted)
    )


def read(path: str | Path) -> tuple[torch.jit.ScriptModule, Exported]:
    """Return the module and its description. Read only trusted files: TorchScript is code."""
    extra = {DESCRIPTION: ""}
    try:
        with unwarned():
            module = torch.jit.load(str(path), map_location="cpu", _extra_files=extra)
        exported = described(extra[DESCRIPTION]).exported
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"{shown(Path(path))} is not a file that asrkit export wrote: {reason(error)}"
        ) from None
    return module, exported
