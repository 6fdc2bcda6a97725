"""ONNX: a file for ONNX Runtime, in float32; `int8` converts it to a faster file.

The batch size and the number of chunks in a step are dynamic; the state is an input and an output.
A file for full context has no state, and the number of frames is dynamic.
"""

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from asrkit.audio import HOP, SAMPLE_RATE
from asrkit.backends.export_metadata import KEY, PARTS, Exported, What, data_path
from asrkit.build import build_frontend
from asrkit.export.description import describe, samples_ahead
from asrkit.extras import need
from asrkit.model import BLANK, EncoderState, TransducerHead
from asrkit.model_file import ModelFile

if TYPE_CHECKING:
    from onnxscript import ir

STATE = [f"state_{name}" for name in EncoderState._fields]
MOST_BYTES = 3 << 29  # 1.5 GiB of weights in one file; protobuf's limit is 2 GiB for everything
SMALL = 1 << 10  # bytes of a tensor that stays in the graph, where shapes are inferred from it
LONGEST = 1500  # frames of full context for the exporter; more run too
LARGEST = 1 << 20  # limit of the dynamic dimensions, which the exporter requires


def write(module: nn.Module, path: Path, exported: Exported, file: ModelFile) -> None:
    """Export a module of a model file, with metadata for programs that use it.

    Weights of more than MOST_BYTES are written to `data_path(path)`.
    """
    need("onnx", "onnxscript")
    if exported.what in PARTS:
        inputs, shapes = part_inputs(module, exported.what)
    elif exported.context.full:
        inputs, shapes = whole_inputs(file)
    else:
        inputs, shapes = chunk_inputs(module, exported, file)
    tensors = inputs.get("state", [])
    is_encoder = isinstance(tensors, EncoderState)
    state = STATE if is_encoder else [f"state_{i}" for i in range(len(tensors))]
    with quiet(), torch.no_grad():
        program = torch.export.export(module, (), inputs, dynamic_shapes=shapes, strict=False)
        result = torch.onnx.export(
            program, dynamo=True, verbose=False,
            input_names=[*(name for name in inputs if name != "state"), *state],
            output_names=[*output_names(exported, file), *(f"new_{name}" for name in state)],
            custom_translation_table={torch.ops.aten.cos.default: cosine},
        )  # fmt: skip
        assert result is not None
        strip(result.model.graph)
        if exported.what == "predictor":
            forget_shapes(result.model.graph)
        result.model.metadata_props.update(metadata(exported, file))
        save(result.model, path)


def cosine(x: Any) -> Any:
    """Add cos x to a graph, in float64 as a sine: ONNX Runtime before 1.29 has no cosine there."""
    from onnx.numpy_helper import from_array
    from onnxscript import ir
    from onnxscript import opset18 as op

    if x.dtype != ir.DataType.DOUBLE:
        return op.Cos(x)
    return op.Sin(op.Add(x, op.Constant(value=from_array(np.array(math.pi / 2)))))


def save(model: "ir.Model", path: Path) -> None:
    """Write a model in one file, or a large one in two."""
    from onnxscript import ir

    weights = (each.const_value for each in model.graph.initializers.values())
    is_large = sum(each.nbytes for each in weights if each is not None) > MOST_BYTES
    data = data_path(path).name if is_large else None
    ir.save(model, path, external_data=data, size_threshold_bytes=SMALL)


def strip(graph: "ir.Graph") -> None:
    """Remove the exporter's notes: paths and source lines of this machine, half of a small file."""
    from onnxscript import ir

    nodes = [*ir.traversal.RecursiveGraphIterator(graph)]
    made = [value for node in nodes for value in node.outputs]
    for each in (graph, *nodes, *graph.inputs, *graph.initializers.values(), *made):
        each.metadata_props.clear()


def forget_shapes(graph: "ir.Graph") -> None:
    """Remove the shapes inside a graph: the exporter's of an LSTM's state have a dimension more."""
    outputs = [*graph.outputs]
    for node in graph:
        for value in node.outputs:
            if value not in outputs:
                value.shape = None


def metadata(exported: Exported, file: ModelFile) -> dict[str, str]:
    """Return the file's metadata: plain text for programs in any language, and complete JSON."""
    tokenizer, frontend = file.tokenizer, build_frontend(file.config.model)
    head = file.model.head
    return {
        KEY: describe(exported, file),
        "sample_rate": str(SAMPLE_RATE),
        "samples_before": str(frontend.before),
        "samples_after": str(frontend.after),
        "samples_ahead": str(samples_ahead(exported, file)),
        "symbols": "\n".join(map(tokenizer.piece, range(1, tokenizer.vocab_size))),
        **({"max_symbols": str(head.max_symbols)} if isinstance(head, TransducerHead) else {}),
        **file.terms.properties(),
    } | ({} if exported.context.full else {"chunk_length": str(chunk_length(exported, file))})


def part_inputs(module: nn.Module, part: What) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return example inputs of a transducer's part for the exporter, and their dynamic shapes."""
    head: TransducerHead = module.head  # type: ignore[assignment]
    rows = torch.export.Dim("rows", min=1, max=LARGEST)
    if part == "joiner":
        frames, predicted = head.from_encoder.in_features, head.from_predictor.out_features
        inputs = {"frames": torch.zeros(2, frames), "predicted": torch.zeros(2, predicted)}
        return inputs, {name: {0: rows} for name in inputs}
    state = [each.clone() for each in head.start(2)]  # equal tensors would become one input
    tokens = torch.full((2,), BLANK)
    shapes = {"tokens": {0: rows}, "state": [{0: rows} for _ in state]}
    return {"tokens": tokens, "state": state}, shapes


def whole_inputs(file: ModelFile) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return example inputs of full context for the exporter, and their dynamic shapes."""
    encoder = file.model.encoder
    batch = torch.export.Dim("batch", min=1, max=LARGEST)
    frames = torch.export.Dim("frames", min=1, max=LONGEST)
    size = 7 * encoder.rate.factor + encoder.rate.lookahead
    inputs = {"feats": torch.zeros(2, size, encoder.num_mels), "lengths": torch.full((2,), size)}
    length = encoder.rate.factor * frames + encoder.rate.lookahead
    return inputs, {"feats": {0: batch, 1: length}, "lengths": {0: batch}}


def chunk_inputs(
    module: nn.Module, exported: Exported, file: ModelFile
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return example inputs of a streaming step for the exporter, and their dynamic shapes."""
    state = module.init_state(2)  # type: ignore[operator]
    size = chunk_length(exported, file)
    from_samples = exported.what == "model"
    ahead = 0 if from_samples else file.model.encoder.rate.ahead_frames(exported.context)
    length = 3 * size + ahead
    # Two streams and three chunks: the exporter treats dimensions of size 1 as fixed.
    audio = torch.zeros([2, length] + ([] if from_samples else [state.feats.size(2)]))
    inputs: dict[str, Any] = {audio_name(exported): audio, "lengths": torch.full((2,), length)}
    batch = torch.export.Dim("batch", min=1, max=LARGEST)
    chunks = torch.export.Dim("chunks", min=1, max=LARGEST)
    shapes: dict[str, Any] = {audio_name(exported): {0: batch, 1: size * chunks + ahead}}
    if from_samples:
        past_size: int = module.past_size  # type: ignore[assignment]
        inputs["past"] = torch.zeros(2, past_size)
    shapes |= {name: {0: batch} for name in inputs if name not in shapes}
    inputs["state"] = state
    shapes["state"] = type(state)(*[{0: batch}] * len(state))
    return inputs, shapes


def chunk_length(exported: Exported, file: ModelFile) -> int:
    """Return the length of a chunk in feature frames, or in samples for "model"."""
    frames = file.model.encoder.rate.chunk_frames(exported.context)
    return frames * HOP if exported.what == "model" else frames


def audio_name(exported: Exported) -> str:
    return "samples" if exported.what == "model" else "feats"


def output_names(exported: Exported, file: ModelFile) -> list[str]:
    """Return the names of the outputs before the state."""
    if exported.what in PARTS:
        return ["predicted" if exported.what == "predictor" else "logits"]
    encoded = exported.what == "encoder" or file.config.model.head.kind == "transducer"
    past = ["new_past"] if exported.what == "model" else []
    return ["encoded" if encoded else "log_probs", "frames", *past]


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the exporters' warnings, which users cannot act on."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
