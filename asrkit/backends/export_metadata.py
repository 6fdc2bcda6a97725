"""Metadata of an exported file."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any, Literal, NamedTuple

from asrkit.build import read_tokenizer
from asrkit.config.bounds import MOST_FRAMES
from asrkit.config.running import parse_running
from asrkit.context import FULL, Context
from asrkit.errors import UserError, shown
from asrkit.model_contents import ModelFile, RunnableModel
from asrkit.terms import Terms, checked_languages, checked_licence

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


class ExportDescription(NamedTuple):
    exported: Exported
    weights: str  # fingerprint of the exported model's weights
    precision: str  # precision of the weights in the file: float32 or int8
    values: dict[str, Any]  # the whole description

    @property
    def model(self) -> str | None:
        """Checksum of the model file; files of earlier versions lack it."""
        return self.values.get("model")

    def runnable(self, path: Path) -> RunnableModel:
        """Return what running the model needs, without its model file of this path.

        Raises:
            UserError: for a file of an earlier version, or a damaged description.
        """

        def load() -> ModelFile:
            raise UserError(f"{shown(path)} is needed for this, beside its export")

        values = self.values
        if "tokenizer" not in values:
            raise UserError(f"its model file {shown(path)} is missing: put it there")
        config = parse_running(values["config"])
        languages = checked_languages(values.get("languages", []))
        licence = values.get("licence") and checked_licence(values["licence"])
        try:
            tokenizer = read_tokenizer(config.text, b64decode(values["tokenizer"]))
            parameters = int(values["parameters"])
        except (ValueError, TypeError) as error:
            raise UserError(f"its description is damaged: {shown(error)}") from None
        return RunnableModel(
            tokenizer, config, Terms(licence, languages), self.exported.context, parameters, path,
            self.model, values, load,
        )  # fmt: skip


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
