"""The result of an import: a model file's contents, and facts about the source."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from asrkit.build import build_model
from asrkit.config import parse_record
from asrkit.errors import shown
from asrkit.interop.checkpoint import CheckpointError
from asrkit.model_contents import ModelFile
from asrkit.text import Tokenizer

UNKNOWN = "unknown"  # required paths of a configuration that an imported model does not have


class Imported(NamedTuple):
    file: ModelFile
    read: tuple[Path, ...]  # source files
    source: str  # the toolkit, with its version if the checkpoint has it
    licence: str | None  # None if the checkpoint does not have it
    left_out: dict[str, int]  # numbers of parameters that the model does not use, by part
    is_start: bool = False  # whether it has to be trained before it recognises anything


def assemble(
    settings: Mapping[str, Any], tokenizer: Tokenizer, weights: Mapping[str, Tensor]
) -> ModelFile:
    """Build the model from weights, after checking their names, shapes and types.

    Args:
        settings: the sections `model`, `text` and `context` of a configuration.
        tokenizer: tokenizer with the blank as token 0.
        weights: weights by asrkit's names, in any floating type.
    """
    missing = {"data": {"train": UNKNOWN, "dev": UNKNOWN}, "training": {"output_dir": UNKNOWN}}
    config = parse_record(missing | dict(settings))
    with torch.device("meta"):
        network = build_model(config.model, tokenizer.vocab_size)
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name in sorted(expected.keys() | found.keys()):
        if name in weights and not weights[name].is_floating_point():
            raise CheckpointError(
                f"weight {shown(name)} must be floating point, got {weights[name].dtype}"
            )
        if expected.get(name) != found.get(name):
            raise CheckpointError(
                f"weight {shown(name)} must be {shown(expected.get(name))}, "
                f"got {shown(found.get(name))}"
            )
    network.load_state_dict({name: t.float() for name, t in weights.items()}, assign=True)
    return ModelFile(network.eval(), tokenizer, config, {})


def fold_norm(
    norm: Mapping[str, Tensor], mean: Tensor, variance: Tensor, epsilon: float
) -> dict[str, Tensor]:
    """Fold the running statistics of a BatchNorm into its scale and bias, which have names."""
    (scale_name, scale), (bias_name, bias) = norm.items()
    scale = scale.double() / (variance.double() + epsilon).sqrt()
    return {scale_name: scale.float(), bias_name: (bias - mean.double() * scale).float()}


def case_of(labels: Iterable[str]) -> str:
    """Return the common case of all labels: "upper", "lower", or "keep" for both.

    Labels such as <unk> are not compared.
    """
    text = "".join(label for label in labels if not label.startswith("<"))
    return "upper" if text.isupper() else "lower" if text.islower() else "keep"
