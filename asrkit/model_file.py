"""The model file: one .safetensors with weights, normalisation, tokenizer, configuration.

Loading uses no pickle. It compares the checksum, checks the configuration as strictly as a user's,
and compares the shapes of the tensors with the network's before it allocates memory. A damaged or
malicious file raises ModelFileError. Weights are float32 in memory, whatever type the file stores.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from asrkit import hub
from asrkit.atomic_write import replacing
from asrkit.build import build_model, read_tokenizer
from asrkit.config import Config, parse_record
from asrkit.errors import reason, shown
from asrkit.hub.catalogue import entry_of, near, require_usable
from asrkit.hub.downloads import Source, find, find_entry, lock
from asrkit.model_contents import ModelFile, ModelFileError
from asrkit.pretrained import ready_models
from asrkit.terms import Terms, checked_languages, checked_licence
from asrkit.text import TextError

logger = logging.getLogger("asrkit")

FORMAT_VERSION = 1
HEADER = "asrkit"  # key of the file's metadata, whose value is JSON
CHECKSUM = "sha256"  # key of that JSON
TOKENIZER = "tokenizer"  # name of the tensor of the tokenizer's bytes
MOST_BYTES = 1 << 24  # size limit of the header and of the tokenizer, a hundred times the usual
STORED = (torch.float32, torch.float16)  # types of weights in a file

Count = Annotated[int, Field(ge=0, le=1 << 53)]
Amount = Annotated[float, Field(ge=0.0, le=1e12)]


class TrainingRecord(BaseModel):
    """The fields of `training` that asrkit reads; other fields are not checked."""

    model_config = ConfigDict(strict=True, extra="allow")

    epochs: Count | None = None
    averaged_epochs: list[Count] = []
    steps: Count | None = None
    audio_hours_per_epoch: Amount | None = None
    wall_seconds: Amount | None = None


class Header(BaseModel):
    """The header of a model file."""

    model_config = ConfigDict(strict=True, extra="ignore")

    format_version: Annotated[int, Field(ge=1, le=FORMAT_VERSION)]
    config: Annotated[Config, BeforeValidator(parse_record)]
    training: TrainingRecord = TrainingRecord()
    licence: Annotated[str, AfterValidator(checked_licence)] | None = None
    languages: Annotated[list[Any], AfterValidator(checked_languages)] = []

    @property
    def terms(self) -> Terms:
        """Terms of the model."""
        return Terms(self.licence, tuple(self.languages))


def save_model(path: str | Path, file: ModelFile, weights: torch.dtype = torch.float32) -> None:
    """Write a model file, atomically; its parameters get a type of STORED, all else is float32."""
    header = {
        "format_version": FORMAT_VERSION,
        "config": file.config.model_dump(mode="json"),
        "training": file.training,
    } | file.terms.metadata()
    tensors = {name: t.detach().cpu().contiguous() for name, t in file.model.state_dict().items()}
    tensors[TOKENIZER] = torch.frombuffer(bytearray(file.tokenizer.to_bytes()), dtype=torch.uint8)
    require_finite(f"{shown(Path(path))} not written", file.model.state_dict())
    for name, _ in file.model.named_parameters():
        tensors[name] = tensors[name].to(weights)
        if not tensors[name].isfinite().all():
            raise ModelFileError(
                f"{shown(Path(path))} not written: {name} is too large for {weights}"
            )
    write_tensors(path, tensors, header)


def require_finite(problem: str, tensors: Mapping[str, Tensor]) -> None:
    """Raise ModelFileError for a tensor with NaN or infinity."""
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ModelFileError(f"{problem}: {shown(Path(name))} holds NaN or infinity")


def write_tensors(path: str | Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write a .safetensors file atomically, with a checksum, which the format itself lacks.

    All metadata is one value: the order of several values would differ from process to process.
    """
    whole = header | {CHECKSUM: checksum(tensors, header)}
    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, {HEADER: json.dumps(whole)})  # `save` would copy twice
        except SafetensorError as error:
            code = re.search(r"os error (\d+)", str(error))
            if code is None:
                raise
            raise OSError(int(code[1]), os.strerror(int(code[1])), str(temporary)) from None


def read_tensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """Return tensors and header of a .safetensors file; the header is None if asrkit's is missing.

    A file without a checksum is not checked against one.
    """
    name = shown(Path(path))
    with opened(path) as file:
        text = (file.metadata() or {}).get(HEADER)
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    header = parsed_header(name, text)
    if header is None:
        return tensors, None
    written = header.pop(CHECKSUM, None)
    if written is not None and written != checksum(tensors, header):
        raise ModelFileError(f"{name} is damaged: its checksum is not that of its contents")
    return tensors, header


@contextmanager
def opened(path: str | Path) -> Iterator[Any]:
    """Open a .safetensors file; every failure in the block is a ModelFileError."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        name = shown(Path(path))
        problem = f"{name} is damaged or not a .safetensors file: {reason(error)}"
        raise ModelFileError(problem) from None


def parsed_header(name: str, text: str | None) -> dict[str, Any] | None:
    """Return the values of a header; None for a file without asrkit's."""
    if text is None:
        return None
    try:
        if len(text) > MOST_BYTES:
            raise ValueError("too long")
        return dict(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        raise ModelFileError(f"{name}: its header is damaged") from None


def checksum(tensors: Mapping[str, Tensor], header: dict[str, Any]) -> str:
    """Return the SHA-256 of a file's header and tensors, in any order."""
    return fingerprint(dict(sorted(tensors.items())), json.dumps(header))


def fingerprint(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """Return the SHA-256 of a text and of tensors, in this order."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in tensors.items():
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        # Bytes: NumPy has no bfloat16, which a file may hold.
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def model_path(model: str | Path) -> Path:
    """Return the path of a model file.

    Args:
        model: path of the file; folder with a model.safetensors; name of a ready model or of
            another one in the catalogue; or hf://owner/name. Models of the hub are downloaded, and
            converted if they are checkpoints of NeMo.
    """
    if not isinstance(model, str | PurePath):
        raise ModelFileError(f"a model must be a path or a ready one's name, got {shown(model)}")
    path, ready, text = Path(model), ready_models(), str(model)
    if isinstance(model, str) and text.startswith(hub.PREFIX):
        address = hub.address_of(text)
        require_usable(address.repository)
        return cached(find(address))
    if path.is_file():
        return path
    if text and (path / hub.MODEL).is_file():
        return path / hub.MODEL
    if text in ready:
        return ready[text]
    entry = entry_of(text) if isinstance(model, str) else None
    if entry is not None and entry.repository is not None:
        return cached(find_entry(entry), entry.prompt)
    if not path.exists() and path.suffix != ".safetensors":
        require_usable(text)
    is_address = hub.REPOSITORY.fullmatch(text) and not (path.suffix or path.parent.is_dir())
    raise ModelFileError(
        f"no model file {text and shown(path)}: give a file of asrkit train or asrkit "
        f"import, a ready model ({', '.join(ready) or 'none'}), another name of asrkit models, or "
        f"{hub.PREFIX}{model if is_address else 'owner/name'} of the hub{near(text)}"
    )


def cached(source: Source, prompt: str | None = None) -> Path:
    """Return the path of a model of the hub in the cache; a checkpoint is converted there."""
    checkpoint = Path(source.names[0])
    if checkpoint.suffix != ".nemo":
        return source.fetch() / checkpoint
    if source.listing.licence is None:
        raise ModelFileError(
            f"the card of {source.address} states no licence: asrkit import nemo {source.address} "
            "--output FILE --licence NAME"
        )
    path = source.converted(prompt)
    with lock(path):  # another process may convert it
        if not path.is_file():
            from asrkit.interop import import_checkpoint, recorded

            downloaded = source.fetch() / checkpoint
            logger.warning("converting %s to %s", checkpoint, path)
            imported = import_checkpoint("nemo", downloaded, None, prompt)
            save_model(path, recorded(imported, source.name, prompt, source.listing.terms))
    return path


def load_model(model: str | Path) -> ModelFile:
    """Read a model file.

    Args:
        model: path of the file or of its folder, name of a ready model, or hf://owner/name.
    """
    path = model_path(model)
    name = shown(path)
    tensors, values = read_tensors(path)
    header = checked_header(name, values)
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
    training = (values or {}).get("training", {})
    return ModelFile(network.eval(), tokenizer, header.config, training, path, header.terms)


def read_header(model: str | Path) -> Header:
    """Return the header of a model file, without reading its tensors."""
    path = model_path(model)
    with opened(path) as file:
        values = parsed_header(shown(path), (file.metadata() or {}).get(HEADER))
    return checked_header(shown(path), values)


def checked_header(name: str, values: dict[str, Any] | None) -> Header:
    """Return a header from its values."""
    if values is None:
        raise ModelFileError(f"{name} is a .safetensors file, but not an asrkit model")
    try:
        return Header.model_validate(values)
    except ValidationError as error:
        wrong = error.errors()[0]
        key, problem = ".".join(map(str, wrong["loc"])), reason(ValueError(wrong["msg"]), lines=5)
        raise ModelFileError(
            f"{name}: its header is damaged, or of a later asrkit: {shown(key)}: {problem}, "
            f"got {shown(wrong['input'])}"
        ) from None
