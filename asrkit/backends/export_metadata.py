"""Metadata of an exported file."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator

from asrkit.config.bounds import MOST_FRAMES
from asrkit.context import FULL, Context
from asrkit.errors import UserError, shown
from asrkit.model_contents import ModelFile, RunnableModel
from asrkit.model_header import MOST_BYTES, Count, RunningHeader, checked_header, runnable_of
from asrkit.text import Tokenizer

What = Literal["encoder", "ctc", "transducer", "model", "predictor", "joiner"]
CONTENTS: tuple[What, ...] = ("encoder", "ctc", "transducer", "model")  # of an export's first file
PARTS: tuple[What, ...] = ("predictor", "joiner")  # the other files of a transducer's export
KEY = "asrkit"  # key of the description in a file's metadata
FORMAT_VERSION = 1  # version of the description, inputs and outputs


class Exported(NamedTuple):
    """The part of a model that is exported, and its context."""

    what: What
    context: Context
    frame_ms: int = 40  # milliseconds of an encoder frame; older descriptions do not state it

    def __str__(self) -> str:
        context = self.context
        if context.full:
            return f"{self.what}, full context"
        chunk, left, right = (frames * self.frame_ms for frames in context)
        after = f" and {right} ms after them" if right else ""
        return f"{self.what}, chunks of {chunk} ms with {left} ms before them{after}"


class ExportHeader(RunningHeader):
    """The part of a description that running an export without its model file reads."""

    tokenizer: Annotated[bytes, BeforeValidator(lambda text: b64decode(str(text)))]
    parameters: Count


class ExportDescription(NamedTuple):
    exported: Exported
    weights: str  # fingerprint of the exported model's weights
    precision: str  # precision of the weights in the file: float32 or int8
    values: dict[str, Any]  # the whole description

    @property
    def model(self) -> str | None:
        """Checksum of the model file; files of earlier versions lack it."""
        return self.values.get("model")

    def runnable(self, path: Path, load: Callable[[Path], ModelFile]) -> RunnableModel:
        """Return what running an export of this path needs, without its model file.

        Args:
            load: reads the model file, for what needs it.

        Raises:
            UserError: for a file of an earlier version, or a damaged description.
        """
        name, model = shown(path), model_path_of(path, self)
        if "tokenizer" not in self.values:
            raise UserError(f"{name} does not state its tokenizer: name its model file instead")
        header = checked_header(ExportHeader, name, self.values)
        runnable = runnable_of(
            name, model, header, self.values, header.tokenizer, header.parameters, self.model, load
        )
        return runnable._replace(live=self.exported.context, export=path)


def encoded(tokenizer: Tokenizer) -> str:
    """Return a tokenizer as a description states it."""
    return b64encode(tokenizer.to_bytes()).decode()


def part_path(path: Path, part: What) -> Path:
    """Return the path of a part beside an export, such as exp/model.640-2560ms.joiner.onnx."""
    return path.with_name(f"{path.stem}.{part}{path.suffix}")


def data_path(path: Path) -> Path:
    """Return the path of the weights that a large ONNX file has in a file of their own."""
    return path.with_name(f"{path.name}.data")


def described(text: str) -> ExportDescription:
    """Parse the description that `describe` wrote.

    Raises:
        ValueError: for any other text.
    """
    try:
        if len(text) > MOST_BYTES:
            raise ValueError(f"its description is longer than {MOST_BYTES} characters")
        values = json.loads(text)
        version = values["format_version"]
        if version != FORMAT_VERSION:
            raise ValueError(f"format version {version!r}, this asrkit reads {FORMAT_VERSION}")
        context = Context(
            values["chunk_size"], values["left_context"], values.get("right_context", 0)
        )
        exported = Exported(values["what"], context, values.get("frame_ms", 40))
        sizes = *context, exported.frame_ms
        if exported.what not in (*CONTENTS, *PARTS) or not all(type(size) is int for size in sizes):
            raise ValueError("its description is damaged")
        whole = context == FULL and exported.what in ("ctc", "transducer", *PARTS)
        if not whole and not (
            1 <= context.chunk_size <= MOST_FRAMES
            and all(0 <= frames <= MOST_FRAMES for frames in context[1:])
        ):
            raise ValueError(f"its chunk and contexts are beyond {MOST_FRAMES} frames")
        if not 1 <= exported.frame_ms <= 1000:
            raise ValueError(f"its frames of {exported.frame_ms} ms are beyond a second")
        return ExportDescription(exported, values["weights"], values["precision"], values)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"its description is damaged: {shown(error)}") from None


def export_path(model: Path, exported: Exported, kind: str) -> Path:
    """Return the path of an export, such as exp/model.640-2560ms.onnx or exp/model.full.onnx."""
    what = "" if exported.what in ("ctc", "transducer") else f".{exported.what}"
    suffix = {
        "torchscript": ".ts", "onnx": ".onnx", "onnx-int8": ".int8.onnx",
        "sherpa-onnx": ".sherpa-onnx", "sherpa-onnx-int8": ".int8.sherpa-onnx",  # folders
    }[kind]  # fmt: skip
    chunk, left, right = (frames * exported.frame_ms for frames in exported.context)
    after = f"-{right}" if right else ""
    context = "full" if exported.context.full else f"{chunk}-{left}{after}ms"
    return model.with_name(f"{model.stem}{what}.{context}{suffix}")


def model_path_of(export: Path, description: ExportDescription) -> Path:
    """Return the path of the model file that an export lies beside: `export_path`, backwards."""
    kind = "onnx-int8" if description.precision == "int8" else "onnx"
    ending = export_path(Path("_"), description.exported, kind).name[1:]
    return export.with_name(f"{export.name.removesuffix(ending)}.safetensors")
