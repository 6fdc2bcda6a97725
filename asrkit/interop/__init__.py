"""Import of other toolkits' checkpoints as asrkit's models. No code in such a file is run."""

from collections.abc import Callable
from pathlib import Path

from asrkit.errors import UserError, reason, shown
from asrkit.interop.checkpoint import CheckpointError
from asrkit.interop.imported import Imported, recorded
from asrkit.interop.nemo import read_nemo
from asrkit.interop.wenet import read_wenet
from asrkit.interop.whisper import read_whisper

FORMATS: dict[str, Callable[..., Imported]] = {
    "nemo": read_nemo,
    "wenet": read_wenet,
    "whisper": read_whisper,
}
OPTIONS = {"nemo": ("head", "prompt"), "wenet": (), "whisper": ("frame_ms",)}
# Patterns of the files of a repository; the first one is required.
FILES: dict[str, tuple[str, ...]] = {
    "wenet": ("train.yaml", "final.pt", "units.txt", "words.txt", "*.model"),
    "whisper": ("model.safetensors", "config.json"),
}


def import_checkpoint(
    kind: str,
    path: str | Path,
    head: str | None = None,
    prompt: str | None = None,
    frame_ms: int | None = None,
) -> Imported:
    """Import the model of a checkpoint.

    Args:
        kind: one of FORMATS.
        path: checkpoint, a file or a folder as its toolkit writes it.
        head: transducer or ctc, for a hybrid of NeMo; None for the transducer of a hybrid.
        prompt: language of a model of NeMo with a language prompt.
        frame_ms: milliseconds of an encoder frame of Whisper: 20, as in Whisper, 40 or 80; None for
            40.

    Raises:
        CheckpointError: if it is damaged, malicious, or a model that asrkit cannot run exactly.
        OSError: if it cannot be read.
    """
    options = {"head": head, "prompt": prompt, "frame_ms": frame_ms}
    options = {name: value for name, value in options.items() if value is not None}
    for name in options:
        if name not in OPTIONS[kind]:
            raise CheckpointError(
                f"--{name.replace('_', '-')} has no effect on a checkpoint of {kind}: leave it out"
            )
    try:
        return FORMATS[kind](Path(path), **options)
    except UserError as error:  # in the checkpoint, its configuration or its tokenizer
        raise CheckpointError(f"{shown(Path(path))}: {error}") from None
    except (RuntimeError, IndexError, TypeError, ValueError) as error:  # mostly wrong shapes
        raise CheckpointError(f"{shown(Path(path))} is inconsistent: {reason(error)}") from None
