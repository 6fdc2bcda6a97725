"""Graphs around an export, for sherpa-onnx's layouts: windows of features, and states as one row of
numbers.

sherpa-onnx passes windows of features, each of which begins `shift` frames after the one before. It
carries a stream's state in tensors whose sizes the metadata states, and fills them with zeros at
first. So any state fits into them. The feature frames that precede a window are part of the state.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from asrkit.audio import HOP
from asrkit.backends.export_metadata import Exported
from asrkit.errors import UserError
from asrkit.export.onnx import STATE
from asrkit.model import ConformerEncoder, EncoderState, TransducerHead
from asrkit.model_file import ModelFile

if TYPE_CHECKING:
    from onnx import ModelProto

FACTOR = 4  # of the layouts whose frames have 40 ms
FLOATS = STATE[:-1]  # the encoder's state without the position

# From sherpa-onnx's inputs to those of the export. N streams; windows of W frames. The frames of a
# step are those kept from earlier windows, and those of this window, `x`.
BEFORE = """
<ir_version: 9, opset_import: ["": 20]>
before ({inputs})
    => (float[N, {step}, {F}] feats, int64[N] lengths, {state}, int64[N] state_position,
        float[N, {lead}, {F}] new_lead)
{{
  {reads}
  streams = Shape <start = 0, end = 1> (x)
  sizes = Constant <value_ints = {sizes}> ()
  {parts} = Split <axis = 1> (rows, sizes)
  {unpacked}

  frames = Concat <axis = 1> (lead, x)
  start = Constant <value_ints = [0]> ()
  step = Constant <value_ints = [{step}]> ()
  shift = Constant <value_ints = [{shift}]> ()
  end = Constant <value_ints = [{shift_lead}]> ()
  time = Constant <value_ints = [1]> ()
  feats = Slice (frames, start, step, time)
  new_lead = Slice (frames, shift, end, time)
  lengths = Expand (step, streams)
}}
"""

# From the export's outputs to those of sherpa-onnx.
AFTER = """
<ir_version: 9, opset_import: ["": 20]>
after ({output}, int64[N] frames, {news}, int64[N] new_state_position,
       float[N, {lead}, {F}] new_lead)
    => ({outputs})
{{
  streams = Shape <start = 0, end = 1> (frames)
  {packed}
  rows = Concat <axis = 1> ({parts})
  {writes}
}}
"""


class Wires(NamedTuple):
    """The inputs and outputs of an encoder in a layout: texts with names of sizes in braces."""

    inputs: str
    reads: str  # nodes from the inputs to `x`, `rows`, the state, and `state_position`
    output: str  # what the export returns for each frame
    outputs: str
    writes: str  # nodes from `output`, `rows` and `new_state_position` to the outputs


class Windows(NamedTuple):
    """The feature frames of a step, in sherpa-onnx and in the export."""

    size: int  # W, frames of a window
    shift: int  # frames from a window to the next one
    step: int  # frames of the export's step, of which `lead` are kept from earlier windows
    lead: int


def windows_of(encoder: ConformerEncoder, exported: Exported) -> Windows:
    rate, context = encoder.rate, exported.context
    shift, step, lead = rate.chunk_frames(context), rate.step_frames(context), rate.lead_frames
    return Windows(max(step - lead, shift), shift, step, lead)


def parts_of(file: ModelFile, exported: Exported) -> dict[str, list[int]]:
    """Return the shapes of the parts of the cache, without the dimension of the streams."""
    state: EncoderState = file.model.encoder.init_state(1, exported.context.left)
    windows = windows_of(file.model.encoder, exported)
    shapes = {name: [*part.shape[1:]] for name, part in zip(FLOATS, state, strict=False)}
    return {"lead": [windows.lead, file.model.encoder.num_mels], **shapes}


def tail_samples(file: ModelFile, exported: Exported) -> int:
    """Return the number of zeros to append, so that the window of the last frame is whole.

    The chunk of the last frame begins at most `lead` frames after that frame.
    """
    windows = windows_of(file.model.encoder, exported)
    return HOP * (windows.size + windows.lead + 2)


def total_of(file: ModelFile, exported: Exported) -> int:
    """Return the number of numbers in the cache of a stream."""
    return sum(map(math.prod, parts_of(file, exported).values()))


def typed(shapes: dict[str, list[int]]) -> str:
    """Return declarations of float tensors of N streams."""
    return ", ".join(
        f"float[N, {', '.join(map(str, shape))}] {name}" for name, shape in shapes.items()
    )


def reshaped(shapes: dict[str, list[int]], before: str, after: str) -> str:
    """Return the nodes that give tensors of N streams these shapes.

    Args:
        before: beginning of the tensors' names.
        after: beginning of the names of the results.
    """
    return "\n  ".join(
        f"{name}_sizes = Constant <value_ints = {shape}> ()\n"
        f"  {name}_shape = Concat <axis = 0> (streams, {name}_sizes)\n"
        f"  {after}{name} = Reshape <allowzero = 1> ({before}{name}, {name}_shape)"
        for name, shape in shapes.items()
    )


def check_streams(
    file: ModelFile, exported: Exported, is_by_4: bool = False, max_symbols: int = 0
) -> None:
    """Raise UserError for a model or a context that no layout holds.

    Args:
        is_by_4: whether sherpa-onnx computes times as if every frame had 40 ms.
        max_symbols: most labels that sherpa-onnx writes in a frame of a transducer.
    """
    encoder, head = file.model.encoder, file.model.head
    if exported.context.full:
        raise UserError("sherpa-onnx's layouts need chunks, got full context: use --chunk-ms")
    if any(bool(part.any()) for part in encoder.init_state(1, exported.context.left)):
        raise UserError("sherpa-onnx needs an initial state of zeros")
    if is_by_4 and encoder.rate.factor != FACTOR:
        raise UserError(
            f"sherpa-onnx needs encoder frames of {FACTOR}0 ms for Kaldi's features, this model's "
            f"have {encoder.rate.frame_ms} ms: use a model with subsampling by {FACTOR}"
        )
    if isinstance(head, TransducerHead) and head.max_symbols != max_symbols:
        raise UserError(
            f"sherpa-onnx's limit of labels in a frame is {max_symbols} for this model: "
            f"model.head.max_symbols must be {max_symbols}, got {head.max_symbols}"
        )


def encoder_graph(
    path: Path, file: ModelFile, exported: Exported, wires: Wires, **sizes: object
) -> "ModelProto":
    """Return the graph of an encoder that takes windows of features and its state as rows.

    Args:
        path: export of the encoder.
        sizes: sizes in `wires` that only its layout has.
    """
    encoder, windows = file.model.encoder, windows_of(file.model.encoder, exported)
    shapes = parts_of(file, exported)
    state = {name: shape for name, shape in shapes.items() if name != "lead"}
    flat = {name: [math.prod(shape)] for name, shape in shapes.items()}
    values: dict[str, object] = {
        "F": encoder.num_mels, "W": windows.size, "step": windows.step, "shift": windows.shift,
        "lead": windows.lead, "shift_lead": windows.shift + windows.lead, "D": encoder.dim,
        "V": file.tokenizer.vocab_size, "total": total_of(file, exported), **sizes,
    }  # fmt: skip
    values |= {
        name: text.format(**values) for name, text in wires._asdict().items()
    } | {
        "parts": ", ".join(f"flat_{name}" for name in shapes), "state": typed(state),
        "sizes": [math.prod(shape) for shape in shapes.values()],
        "news": typed({f"new_{name}": shape for name, shape in state.items()}),
        "unpacked": reshaped(shapes, "flat_", ""), "packed": reshaped(flat, "new_", "flat_"),
    }  # fmt: skip
    return between(BEFORE.format(**values), path, AFTER.format(**values))


def between(before: str, path: Path, after: str) -> "ModelProto":
    """Return a graph that computes `before`, an export, and `after`.

    Args:
        before: text of a graph whose outputs are the inputs of the export, by name.
        path: path of the export.
        after: text of a graph whose inputs are outputs of the export or of `before`, by name.
    """
    import onnx
    from onnx import compose, parser

    core, first, last = onnx.load(path), parser.parse_model(before), parser.parse_model(after)
    for graph in (first, last):
        graph.ir_version = core.ir_version
        del graph.opset_import[:]
        graph.opset_import.extend(core.opset_import)
    # Names inside a graph must not be those of another graph.
    first = compose.add_prefix(first, "before_", rename_inputs=False, rename_outputs=False)
    last = compose.add_prefix(last, "after_", rename_inputs=False, rename_outputs=False)
    core = compose.add_prefix(core, "core_", rename_inputs=True, rename_outputs=True)
    links = [(each.name.removeprefix("core_"), each.name) for each in core.graph.input]
    merged = compose.merge_models(first, core, links)
    passed = {each.name for each in first.graph.output}
    taken = [each.name for each in last.graph.input]
    links = [(name if name in passed else f"core_{name}", name) for name in taken]
    outputs = [each.name for each in last.graph.output]
    return compose.merge_models(merged, last, links, outputs=outputs)


def describe(model: "ModelProto", **values: object) -> "ModelProto":
    """Return the graph, with sherpa-onnx's metadata in place of asrkit's."""
    from onnx import helper

    helper.set_model_props(model, {key: str(value) for key, value in values.items()})
    return model
