"""The header of a model file, and reading what running the model needs, without torch."""

import functools
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open

from asrkit.build import read_tokenizer
from asrkit.config.running import RunningConfig, parse_running
from asrkit.errors import reason, shown
from asrkit.extras import need
from asrkit.model_contents import ModelFile, ModelFileError, RunnableModel
from asrkit.terms import Terms, checked_languages, checked_licence
from asrkit.text import TextError

FORMAT_VERSION = 1
HEADER = "asrkit"  # key of the file's metadata, whose value is JSON
CHECKSUM = "sha256"  # key of that JSON
TOKENIZER = "tokenizer"  # name of the tensor of the tokenizer's bytes
MOST_BYTES = 1 << 24  # size limit of the header and of the tokenizer, a hundred times the usual

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
    """The header of a model file, without its configuration."""

    model_config = ConfigDict(strict=True, extra="ignore")

    format_version: Annotated[int, Field(ge=1, le=FORMAT_VERSION)]
    training: TrainingRecord = TrainingRecord()
    licence: Annotated[str, AfterValidator(checked_licence)] | None = None
    languages: Annotated[list[Any], AfterValidator(checked_languages)] = []

    @property
    def terms(self) -> Terms:
        """Terms of the model."""
        return Terms(self.licence, tuple(self.languages))


class RunningHeader(Header):
    """The header of a model file with what running the model reads of its configuration."""

    config: Annotated[RunningConfig, BeforeValidator(parse_running)]


AnyHeader = TypeVar("AnyHeader", bound=Header)


def read_runnable(path: Path, load: Callable[[Path], ModelFile]) -> RunnableModel:
    """Read what running a model needs of its file, except the network's weights.

    Args:
        load: reads the whole file, with torch.
    """
    name = shown(path)
    with opened(path) as (file, values):
        header = checked_header(RunningHeader, name, values)
        tensors = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118
        shapes = {key: each.get_shape() for key, each in tensors.items()}
        size = math.prod(shapes.pop(TOKENIZER, [MOST_BYTES + 1]))
        if size > MOST_BYTES or tensors[TOKENIZER].get_dtype() != "U8":
            raise ModelFileError(f"{name} has no tokenizer of at most {MOST_BYTES} bytes")
        data = file.get_tensor(TOKENIZER).tobytes()
    values, parameters = values or {}, sum(map(math.prod, shapes.values()))
    return runnable_of(name, path, header, values, data, parameters, values.get(CHECKSUM), load)


def runnable_of(
    name: str, path: Path, header: RunningHeader, values: dict[str, Any], tokenizer: bytes,
    parameters: int, checksum: str | None, load: Callable[[Path], ModelFile],
) -> RunnableModel:  # fmt: skip
    """Return what running a model needs.

    Args:
        name: name of the file that was read, for messages.
        path: path of the model file, whose contents have the checksum.
        values: values of the header.
        load: see `read_runnable`.
    """

    @functools.cache
    def load_whole() -> ModelFile:
        need("torch")
        file = load(path)
        if file.checksum != checksum:
            raise ModelFileError(f"{shown(path)} has changed since it was loaded or exported")
        return file

    try:
        read = read_tokenizer(header.config.text, tokenizer)
    except (TextError, ValueError) as error:
        raise ModelFileError(f"{name} does not fit together: {reason(error)}") from None
    return RunnableModel(
        read, header.config, header.terms, header.config.context.live, parameters, path, checksum,
        values, load_whole,
    )  # fmt: skip


@contextmanager
def opened(path: str | Path, framework: str = "np") -> Iterator[tuple[Any, dict[str, Any] | None]]:
    """Open a .safetensors file; return it and the values of asrkit's header, None without one.

    Every failure in the block is a ModelFileError.
    """
    name = shown(Path(path))
    try:
        with safe_open(path, framework=framework) as file:
            yield file, parsed_header(name, (file.metadata() or {}).get(HEADER))
    except (SafetensorError, OSError) as error:
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


def checked_header(kind: type[AnyHeader], name: str, values: dict[str, Any] | None) -> AnyHeader:
    """Return a header of a kind from its values."""
    if values is None:
        raise ModelFileError(f"{name} is a .safetensors file, but not an asrkit model")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        wrong = error.errors()[0]
        key, problem = ".".join(map(str, wrong["loc"])), reason(ValueError(wrong["msg"]), lines=5)
        raise ModelFileError(
            f"{name}: its header is damaged, or of a later asrkit: {shown(key)}: {problem}, "
            f"got {shown(wrong['input'])}"
        ) from None
