"""The model file: one .safetensors with weights, normalisation, tokenizer, configuration.

Loading uses no pickle. It compares the checksum, checks the configuration as strictly as a user's,
and compares the shapes of the tensors with the network's before it allocates memory. A damaged or
malicious file raises ModelFileError. Weights are float32 in memory, whatever type the file stores.
"""

from pathlib import Path
from typing import Annotated

import torch
from pydantic import BeforeValidator

from asrkit.build import read_tokenizer
from asrkit.build_network import build_model
from asrkit.config.schema import Config, parse_record
from asrkit.errors import reason, shown
from asrkit.model_contents import ModelFile, ModelFileError
from asrkit.model_header import CHECKSUM, MOST_BYTES, TOKENIZER, Header, checked_header, opened
from asrkit.model_path import model_path
from asrkit.model_tensors import read_tensors, require_finite, save_model
from asrkit.text import TextError

__all__ = ["ModelFile", "ModelFileError", "load_model", "read_header", "save_model"]

STORED = (torch.float32, torch.float16)  # types of weights in a file


class WholeHeader(Header):
    """The header of a model file with its whole configuration."""

    config: Annotated[Config, BeforeValidator(parse_record)]


def load_model(model: str | Path) -> ModelFile:
    """Read a model file.

    Args:
        model: path of the file or of its folder, name of a ready model, or hf://owner/name.
    """
    path = model_path(model)
    name = shown(path)
    tensors, values = read_tensors(path)
    header = checked_header(WholeHeader, name, values)
    other = {key: t.dtype for key, t in tensors.items() if t.dtype not in STORED}
    if other.pop(TOKENIZER, None) != torch.uint8 or other:
        got = shown(other) if other else "no tokenizer"
        raise ModelFileError(f"{name}: weights must be float32 or float16, got {got}")
    if tensors[TOKENIZER].numel() > MOST_BYTES:
        raise ModelFileError(f"{name}: its tokenizer is larger than {MOST_BYTES} bytes")
    try:
        tokenizer = read_tokenizer(header.config.text, tensors.pop(TOKENIZER).numpy().tobytes())
        with torch.device("meta"):
            network = build_model(header.config.model, tokenizer.vocab_size)
        # Copies: tensors of the file are mapped. If the file is truncated, as when `cp` writes a
        # new model over a served one, a process that reads them dies with SIGBUS.
        weights = {key: t.to(torch.float32, copy=True) for key, t in tensors.items()}
        network.load_state_dict(weights, assign=True)
    except (TextError, RuntimeError, TypeError, ValueError) as error:
        raise ModelFileError(f"{name} does not fit together: {reason(error, lines=5)}") from None
    require_finite(name, network.state_dict())
    values = values or {}
    return ModelFile(
        network.eval(), tokenizer, header.config, values.get("training", {}), path, header.terms,
        values.get(CHECKSUM),
    )  # fmt: skip


def read_header(model: str | Path) -> WholeHeader:
    """Return the header of a model file, without reading its tensors."""
    path = model_path(model)
    with opened(path) as (_, values):
        return checked_header(WholeHeader, shown(path), values)
