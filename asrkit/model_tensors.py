"""Writing model files, and reading and writing their tensors.

A file has a checksum, which the format itself lacks.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from asrkit.atomic_write import replacing
from asrkit.errors import shown
from asrkit.model_contents import ModelFile, ModelFileError
from asrkit.model_header import CHECKSUM, FORMAT_VERSION, HEADER, TOKENIZER, opened


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
    with opened(path, "pt") as (file, header):
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    if header is None:
        return tensors, None
    contents = {key: value for key, value in header.items() if key != CHECKSUM}
    if CHECKSUM in header and header[CHECKSUM] != checksum(tensors, contents):
        raise ModelFileError(f"{name} is damaged: its checksum is not that of its contents")
    return tensors, header


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
