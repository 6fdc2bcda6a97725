"""Graphs around an export, for sherpa-onnx's layouts: windows of features, and states as one row of
numbers.

sherpa-onnx passes windows of features, each of which begins `shift` frames after the one before. It
carries a stream's state in tensors whose sizes the metadata states, and fills them with zeros at
first. So any state fits into them. The feature frames that precede a window are part of the state.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from asrkit.audio import HOP
from asrkit.backends.export_metadata import Exported
from asrkit.backends.onnx import STATE
from asrkit.errors import UserError
from asrkit.model import ConformerEncoder, EncoderState
from asrkit.model_file import ModelFile

if TYPE_CHECKING:
    from onnx import ModelProto

FLOATS = STATE[:-1]  # the encoder's state without the position

# The frames of a step: those kept from earlier windows, and those of this window, `x`.
WINDOW = """frames = Concat <axis = 1> (lead, x)
  start = Constant <value_ints = [0]> ()
  step = Constant <value_ints = [{step}]> ()
  shift = Constant <value_ints = [{shift}]> ()
  end = Constant <value_ints = [{shift_lead}]> ()
  time = Constant <value_ints = [1]> ()
  feats = Slice (frames, start, step, time)
  new_lead = Slice (frames, shift, end, time)
  lengths = Expand (step, streams)"""


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


def unpacked(shapes: dict[str, list[int]]) -> str:
    """Return the nodes that give the rows `flat_NAME`, (N, numbers), these shapes."""
    return "\n  ".join(
        f"{name}_sizes = Constant <value_ints = {shape}> ()\n"
        f"  {name}_shape = Concat <axis = 0> (streams, {name}_sizes)\n"
        f"  {name} = Reshape <allowzero = 1> (flat_{name}, {name}_shape)"
        for name, shape in shapes.items()
    )


def packed(shapes: dict[str, list[int]]) -> str:
    """Return the nodes that make rows `flat_NAME`, (N, numbers), of the tensors `new_NAME`."""
    return "\n  ".join(
        f"{name}_sizes = Constant <value_ints = [{math.prod(shape)}]> ()\n"
        f"  {name}_shape = Concat <axis = 0> (streams, {name}_sizes)\n"
        f"  flat_{name} = Reshape <allowzero = 1> (new_{name}, {name}_shape)"
        for name, shape in shapes.items()
    )


def check_streams(file: ModelFile, exported: Exported) -> None:
    """Raise UserError for full context, and for streams that do not start from zeros."""
    if exported.context.full:
        raise UserError("sherpa-onnx's layouts need chunks, got full context: use --chunk-ms")
    if any(bool(part.any()) for part in file.model.encoder.init_state(1, exported.context.left)):
        raise UserError("sherpa-onnx needs an initial state of zeros")


def encoder_graph(
    core: "ModelProto",
    file: ModelFile,
    exported: Exported,
    layout: tuple[str, str],
    kept: Sequence[str],
    **more: object,
) -> "ModelProto":
    """Return the graph of an encoder that takes windows of features and its state as rows.

    Args:
        layout: texts of the graphs before and after the core, with names of sizes in braces.
        kept: names that pass by the core, see `between`.
    """
    encoder, windows = file.model.encoder, windows_of(file.model.encoder, exported)
    shapes = parts_of(file, exported)
    state = {name: shape for name, shape in shapes.items() if name != "lead"}
    values: dict[str, object] = {
        "F": encoder.num_mels, "W": windows.size, "step": windows.step, "shift": windows.shift,
        "lead": windows.lead, "shift_lead": windows.shift + windows.lead,
        "total": total_of(file, exported), "D": encoder.dim,
        "parts": ", ".join(f"flat_{name}" for name in shapes), **more,
    }  # fmt: skip
    numbers = [math.prod(shape) for shape in shapes.values()]
    before, after = layout
    before = before.format(
        **values, state=typed(state), sizes=numbers, reshapes=unpacked(shapes),
        window=WINDOW.format(**values),
    )  # fmt: skip
    news = typed({f"new_{name}": shape for name, shape in state.items()})
    after = after.format(**values, state=news, reshapes=packed(shapes))
    return between(before, core, after, kept)


def between(before: str, core: "ModelProto", after: str, kept: Sequence[str]) -> "ModelProto":
    """Return a graph that computes `before`, `core` and `after`.

    Args:
        before: text of a graph whose outputs are the inputs of the core, by name.
        after: text of a graph whose inputs are outputs of the core, and `kept`, by name.
        kept: inputs or outputs of `before` that `after` takes.
    """
    from onnx import compose, helper, parser

    graphs = [parser.parse_model(text) for text in (before, after)]
    first, last = graphs
    given = {each.name for each in first.graph.output}
    for name in set(kept) - given:  # an input of the first graph
        value = next(each for each in first.graph.input if each.name == name)
        first.graph.node.append(helper.make_node("Identity", [name], [f"kept_{name}"]))
        output = first.graph.output.add()
        output.CopyFrom(value)
        output.name = f"kept_{name}"
    names = {name: name if name in given else f"kept_{name}" for name in kept}
    for graph in graphs:
        graph.ir_version = core.ir_version
        del graph.opset_import[:]
        graph.opset_import.extend(core.opset_import)
    # Names inside a graph must not be those of another graph.
    first = compose.add_prefix(first, "before_", rename_inputs=False, rename_outputs=False)
    last = compose.add_prefix(last, "after_", rename_inputs=False, rename_outputs=False)
    core = compose.add_prefix(core, "core_", rename_inputs=True, rename_outputs=True)
    inputs = [each.name for each in core.graph.input]
    links = [(name.removeprefix("core_"), name) for name in inputs]
    merged = compose.merge_models(first, core, links)
    taken = [each.name for each in last.graph.input]
    links = [(names.get(name, f"core_{name}"), name) for name in taken]
    outputs = [each.name for each in last.graph.output]
    return compose.merge_models(merged, last, links, outputs=outputs)
