"""The importable formats, with one function each."""

from collections.abc import Callable
from pathlib import Path

from asrkit.errors import UserError, reason, shown
from asrkit.interop.checkpoint import CheckpointError
from asrkit.interop.imported import Imported
from asrkit.interop.nemo import read_nemo
from asrkit.interop.wenet import read_wenet

FORMATS: dict[str, Callable[[Path], Imported]] = {"nemo": read_nemo, "wenet": read_wenet}


def import_checkpoint(kind: str, path: str | Path) -> Imported:
    """Import the model of a checkpoint.

    Args:
        kind: one of FORMATS.
        path: checkpoint, a file or a folder as its toolkit writes it.

    Raises:
        CheckpointError: if it is damaged, malicious, or a model that asrkit cannot run exactly.
        OSError: if it cannot be read.
    """
    try:
        return FORMATS[kind](Path(path))
    except UserError as error:  # in the checkpoint, its configuration or its tokenizer
        raise CheckpointError(f"{shown(Path(path))}: {error}") from None
    except (RuntimeError, IndexError, TypeError, ValueError) as error:  # mostly wrong shapes
        raise CheckpointError(f"{shown(Path(path))} is inconsistent: {reason(error)}") from None
