"""The model file: one .safetensors with weights, normalisation, tokenizer, configuration.

No pickle anywhere. A damaged or hostile file is a ModelFileError: its checksum is compared, the
configuration in it is checked as strictly as a user's, and the network is laid out without memory
before the tensors' shapes are compared with it. Weights are float32 in memory, whatever a file
stores them in.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from asrkit.build import build_model, read_tokenizer
from asrkit.config import Config, ConfigError, parse_config
from asrkit.errors import UserError
from asrkit.files import replacing
from asrkit.model import ConformerCTC
from asrkit.models import ready_models
from asrkit.text import TextError, Tokenizer

FORMAT_VERSION = 1
HEADER = "asrkit"  # key of a file's metadata, whose value is JSON
CHECKSUM = "sha256"  # key in it
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
    write_tensors(path, tensors, header)


def write_tensors(path: str | Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write a .safetensors file, atomically, with a checksum: the format itself has none.

    All of the metadata is one value, as the order of several is another in each process.
    """
    whole = header | {CHECKSUM: checksum(tensors, header)}
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={HEADER: json.dumps(whole)})


def read_tensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """Tensors and header of a .safetensors file; None for one without asrkit's header.

    One that was written without a checksum is taken as it is.

    Raises:
        ModelFileError: if it is damaged, or of another kind.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path} is damaged or not a .safetensors file: {error}") from None
    if HEADER not in metadata:
        return tensors, None
    try:
        header = dict(json.loads(metadata[HEADER]))
    except (ValueError, TypeError, RecursionError):
        raise ModelFileError(f"{path}: its header is damaged") from None
    written = header.pop(CHECKSUM, None)
    if written is not None and written != checksum(tensors, header):
        raise ModelFileError(f"{path} is damaged: its checksum is not that of what is in it")
    return tensors, header


def checksum(tensors: dict[str, Tensor], header: dict[str, Any]) -> str:
    """SHA-256 of the header and of all names, types, shapes and values."""
    found = hashlib.sha256(json.dumps(header).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(json.dumps([name, str(tensor.dtype), *tensor.shape]).encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


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
    tensors, found = read_tensors(path)
    header = _checked(path, found)
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


def _checked(path: Path, header: dict[str, Any] | None) -> dict[str, Any]:
    if header is None:
        raise ModelFileError(f"{path} is a .safetensors file, but not an asrkit model")
    if "format_version" not in header:
        raise ModelFileError(f"{path}: its header is damaged")
    version = header["format_version"]
    if version != FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {version!r}; this asrkit reads version {FORMAT_VERSION}"
        )
    return header
