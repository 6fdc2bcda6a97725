"""The result of an import: a model file's contents, and facts about the source."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from asrkit.atomic_write import sha256_of
from asrkit.build_network import build_model
from asrkit.config.schema import parse_record
from asrkit.errors import shown
from asrkit.interop.checkpoint import CheckpointError
from asrkit.model_contents import START, UNNAMED, ModelFile
from asrkit.terms import Terms
from asrkit.text import Tokenizer
from asrkit.version import __version__


class Imported(NamedTuple):
    file: ModelFile
    read: tuple[Path, ...]  # source files
    source: str  # the toolkit, with its version if the checkpoint has it
    left_out: dict[str, int]  # numbers of parameters that the model does not use, by part
    is_start: bool = False  # whether it has to be trained before it recognises anything


def recorded(imported: Imported, name: str, prompt: str | None, terms: Terms) -> ModelFile:
    """Return the model file of an import, with a record of its source."""
    record = {
        "name": name,
        "source": imported.source,
        "sha256": {each.name: sha256_of(each) for each in imported.read},
        "licence": terms.licence,
        "left_out": imported.left_out,
        **({} if prompt is None else {"prompt": prompt}),
        "asrkit": __version__,
    } | ({START: True} if imported.is_start else {})
    return imported.file._replace(training={"imported": record}, terms=terms)


def assemble(
    settings: Mapping[str, Any], tokenizer: Tokenizer, weights: Mapping[str, Tensor]
) -> ModelFile:
    """Build the model from weights, after checking their names, shapes and types.

    Args:
        settings: the sections `model`, `text` and `context` of a configuration.
        tokenizer: tokenizer with the blank as token 0.
        weights: weights by asrkit's names, in any floating type.
    """
    missing = {"data": {"train": UNNAMED, "dev": UNNAMED}, "training": {"output_dir": UNNAMED}}
    config = parse_record(missing | dict(settings))
    with torch.device("meta"):
        network = build_model(config.model, tokenizer.vocab_size)
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise CheckpointError(
                f"weight {shown(name)} must be {shown(expected.get(name))}, "
                f"got {shown(found.get(name))}"
            )
    network.load_state_dict({name: t.float() for name, t in weights.items()}, assign=True)
    return ModelFile(network.eval(), tokenizer, config, {})


def case_of(labels: Iterable[str]) -> str:
    """Return the common case of all labels: "upper", "lower", or "keep" for both.

    Labels such as <unk> are not compared.
    """
    text = "".join(label for label in labels if not label.startswith("<"))
    return "upper" if text.isupper() else "lower" if text.islower() else "keep"
