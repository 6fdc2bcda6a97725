"""What an exported file says of itself."""

import hashlib
import json
from typing import Literal, NamedTuple

from torch import nn

from asrkit.checkpoint import ModelFile

What = Literal["encoder", "ctc", "model"]
CONTENTS: dict[What, str] = {
    "encoder": "log mels to encoder frames",
    "ctc": "log mels to log-probabilities",
    "model": "samples to log-probabilities",
}
KEY = "asrkit"  # of the description in a file's metadata
FORMAT_VERSION = 1  # of the description and of what goes in and out


class Exported(NamedTuple):
    """What of a model is exported, and for which context."""

    what: What
    chunk_size: int
    left_context: int


class Description(NamedTuple):
    exported: Exported
    weights: str  # fingerprint of the model's
    precision: str  # in which they are written: float32 or int8


def describe(exported: Exported, file: ModelFile) -> str:
    """JSON for a program that uses the file, and for `described`."""
    tokenizer = file.tokenizer
    return json.dumps(
        exported._asdict()
        | {
            "format_version": FORMAT_VERSION,
            "symbols": [tokenizer.piece(token) for token in range(1, tokenizer.vocab_size)],
            "config": file.config.model_dump(mode="json"),
            "weights": fingerprint(file.model),
            "precision": "float32",
        }
    )


def described(text: str) -> Description:
    """The description that `describe` wrote.

    Raises:
        ValueError: if it did not.
    """
    try:
        values = json.loads(text)
        version = values["format_version"]
        if version != FORMAT_VERSION:
            raise ValueError(f"format version {version!r}, this asrkit reads {FORMAT_VERSION}")
        exported = Exported(*(values[name] for name in Exported._fields))
        sizes = (exported.chunk_size, exported.left_context)
        if exported.what not in CONTENTS or not all(isinstance(size, int) for size in sizes):
            raise ValueError("its description is damaged")
        return Description(exported, values["weights"], values["precision"])
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"its description is damaged: {error}") from None


def fingerprint(model: nn.Module) -> str:
    """Of a model's weights: an export is of these and no others."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
