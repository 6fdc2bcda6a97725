"""Safe readers of other toolkits' files: no code is run, and the size of a file bounds the memory.

Archives are read in place: no member is ever written to a path that the archive names.
"""

import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any

import torch
from torch import Tensor

from asrkit.config.read_yaml import ConfigError, parse_yaml
from asrkit.errors import UserError, reason, shown

MOST_MEMBERS = 1000  # members of an archive that are read; published archives have ten
MOST_TENSORS = 100_000
MOST_BYTES = 1 << 24  # bytes of a file that is read at once: a configuration, a vocabulary
LONGEST_YAML = 1 << 20  # characters: twice the length of 10 000 labels, each written three times
MOST_SHARED = 2  # bytes of tensors per byte of a file; some have two names


class CheckpointError(UserError):
    """An error in importing a checkpoint; the message has the reason."""


class Archive:
    """The plain files in a tar archive, by path; `open_archive` creates it."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        # Other members, such as links and sparse files, may be larger than the archive.
        self._members = {
            str(PurePosixPath(member.name)): member
            for member in islice(tar, MOST_MEMBERS)
            if member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
        }

    def open(self, path: str) -> IO[bytes]:
        """Open the file at this path of the archive."""
        if path not in self._members:
            raise CheckpointError(f"the archive has no file {shown(path)}")
        file = self._tar.extractfile(self._members[path])
        assert file is not None  # None only for a link or a folder
        return file

    def read(self, path: str) -> bytes:
        """Read a small file."""
        with self.open(path) as file:
            return read_bytes(file, path)


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open a tar archive that is not compressed."""
    try:
        with tarfile.open(path, "r:") as tar:
            yield Archive(tar)
    except (tarfile.TarError, EOFError) as error:
        raise CheckpointError(f"not a tar archive, or damaged: {reason(error)}") from None


def read_bytes(file: IO[bytes], name: str) -> bytes:
    """Read a small file: a configuration, a vocabulary, a tokenizer."""
    data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise CheckpointError(f"{shown(name)} has more than {MOST_BYTES} bytes")
    return data


def read_text(data: bytes, name: str) -> str:
    """Decode UTF-8. Raises CheckpointError for other bytes."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{shown(name)} is not UTF-8: {reason(error)}") from None


def read_settings(data: bytes, name: str) -> dict[str, Any]:
    """Parse a YAML file."""
    try:
        values = parse_yaml(read_text(data, name), LONGEST_YAML)
    except ConfigError as error:
        raise CheckpointError(f"{shown(name)} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{shown(name)} must have keys and values, got {shown(values)}")
    return values


def read_weights(file: IO[bytes], name: str) -> dict[str, Tensor]:
    """Read the tensors of a file by `torch.save`: a dict by name, alone or as "state_dict"."""
    values = read_saved(file, name)
    if isinstance(values, dict) and isinstance(values.get("state_dict"), dict):
        values = values["state_dict"]
    return require_tensors(values, name, file.seek(0, 2))


def read_saved(file: IO[bytes], name: str) -> Any:
    """Read the tensors, containers and numbers of a file by `torch.save`."""
    size = file.seek(0, 2)
    try:
        file.seek(0)
        require_stored(zipfile.ZipFile(file), size)
        file.seek(0)
        return torch.load(file, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except Exception as error:  # malicious files cause errors of any type
        raise CheckpointError(
            f"{shown(name)} is damaged, or has more than weights: {reason(error)}"
        ) from None


def require_tensors(values: Any, name: str, size: int) -> dict[str, Tensor]:
    """Return a dict of plain tensors by name, which are together not much larger than the file.

    Raises:
        CheckpointError: for anything else.
    """
    if not isinstance(values, dict) or len(values) > MOST_TENSORS:
        raise CheckpointError(f"{shown(name)} must have a dict of tensors, got {shown(values)}")
    total = 0
    for key, tensor in values.items():
        plain = isinstance(tensor, Tensor) and tensor.layout == torch.strided
        if not isinstance(key, str) or not plain or tensor.device.type != "cpu":
            raise CheckpointError(f"{shown(name)}: {shown(key)} is not a tensor")
        total += tensor.nbytes
        if total > MOST_SHARED * size:  # possible with strides of 0
            raise CheckpointError(f"{shown(name)}: its tensors are larger than the file")
    return {key: tensor.detach() for key, tensor in values.items()}


def require_stored(archive: zipfile.ZipFile, size: int) -> None:
    """Raise CheckpointError for a compressed zip: torch never writes one, but zip bombs are."""
    infos = archive.infolist()
    if len(infos) > MOST_TENSORS or any(each.compress_type for each in infos):
        raise CheckpointError("the archive of the weights was not written by torch.save")
    if sum(each.file_size for each in infos) > size:
        raise CheckpointError("the archive of the weights is smaller than its contents")
