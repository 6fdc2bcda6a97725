"""The model file: one .safetensors with weights, normalisation, tokenizer, configuration.

No pickle anywhere. A damaged or hostile file is a ModelFileError: the configuration in it is
checked as strictly as a user's, and the network is laid out without memory before the tensors'
shapes are compared with it. Weights are float32 in memory, whatever a file stores them in.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from asrkit.build import build_model, read_tokenizer
from asrkit.config import Config, ConfigError, parse_config
from asrkit.errors import UserError
from asrkit.files import replacing
from asrkit.model import ConformerCTC
from asrkit.models import ready_models
from asrkit.text import TextError, Tokenizer

FORMAT_VERSION = 1
TOKENIZER = "tokenizer"  # name of the tensor of its bytes
STORED = (torch.float32, torch.float16)  # types of weights in a file


class ModelFileError(UserError):
    """A model file that cannot be loaded; the message says why."""


class ModelFile(NamedTuple):
    model: ConformerCTC  # in eval mode
    tokenizer: Tokenizer
    config: Config
    training: dict[str, Any]  # how it was trained, and its scores
    path: Path | None = None  # where it was read


def save_model(path: str | Path, file: ModelFile, weights: torch.dtype = torch.float32) -> None:
    """Write a model file, atomically.

    Args:
        path: to write.
        file: what it holds.
        weights: one of STORED, of the parameters; the normalisation stays float32.

    Raises:
        ModelFileError: if a parameter is too large for that type.
    """
    header = {
        "format_version": FORMAT_VERSION,
        "config": file.config.model_dump(mode="json"),
        "training": file.training,
    }
    tensors = {name: t.detach().cpu().contiguous() for name, t in file.model.state_dict().items()}
    for name, parameter in file.model.named_parameters():
        if parameter.abs().max() > torch.finfo(weights).max:
            raise ModelFileError(f"{path} not written: {name} is too large for {weights}")
        tensors[name] = tensors[name].to(weights)
    tensors[TOKENIZER] = torch.frombuffer(bytearray(file.tokenizer.to_bytes()), dtype=torch.uint8)
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={"asrkit": json.dumps(header)})


def model_path(model: str | Path) -> Path:
    """The file at this path or, where there is none, the ready model of this name.

    Raises:
        ModelFileError: if there is neither.
    """
    path, ready = Path(model), ready_models()
    if path.is_file():
        return path
    if str(model) in ready:
        return ready[str(model)]
    problem = f"no model file {model}"
    if path.name == str(model) and not path.suffix:
        known = ", ".join(ready) or "none"
        problem += f" and no ready model of that name; ready models: {known}; else give a path"
    raise ModelFileError(problem)


def load_model(model: str | Path) -> ModelFile:
    """Read a model file.

    Args:
        model: its path, or the name of a ready model.

    Raises:
        ModelFileError: if it is missing, damaged, of another kind, or of another format version.
    """
    path = model_path(model)
    try:
        with safe_open(path, framework="pt") as file:
            header = _header(path, file.metadata())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path} is damaged or not a .safetensors file: {error}") from None
    try:
        config = parse_config(header["config"])
        other = {name: t.dtype for name, t in tensors.items() if t.dtype not in STORED}
        if other.pop(TOKENIZER, None) != torch.uint8 or other:
            raise ModelFileError(
                f"{path}: weights must be float32 or float16, got {other or 'no tokenizer'}"
            )
        tokenizer = read_tokenizer(config.text, tensors.pop(TOKENIZER).numpy().tobytes())
        with torch.device("meta"):
            network = build_model(config.model, tokenizer.vocab_size)
        network.load_state_dict({name: t.float() for name, t in tensors.items()}, assign=True)
    except (ConfigError, TextError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} does not fit together: {error}") from None
    return ModelFile(network.eval(), tokenizer, config, header.get("training", {}), path)


def _header(path: Path, metadata: dict[str, str] | None) -> dict[str, Any]:
    if not metadata or "asrkit" not in metadata:
        raise ModelFileError(f"{path} is a .safetensors file, but not an asrkit model")
    try:
        header = json.loads(metadata["asrkit"])
        version = header["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ModelFileError(f"{path}: its header is damaged") from None
    if version != FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {version!r}; this asrkit reads version {FORMAT_VERSION}"
        )
    return header
