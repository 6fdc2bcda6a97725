"""Folders for sherpa-onnx, which runs on phones, boards and in browsers.

sherpa-onnx's `wenet-ctc` layout has one cache for attention and one for convolutions. This module
connects an export for ONNX Runtime, in float32 or int8, to these caches: together they are a row of
numbers, which begins with those of the state. The greedy search and the initial state (zeros) equal
asrkit's.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.backends.export_metadata import Exported
from asrkit.errors import UserError
from asrkit.export.sherpa_graphs import between, check_streams, packed, parts_of, typed, unpacked
from asrkit.model_file import ModelFile

if TYPE_CHECKING:
    from onnx import ModelProto

FACTOR = 4  # sherpa-onnx computes times as if every frame had 40 ms

# A graph from sherpa-onnx's inputs to those of the export: one stream, a chunk at a time.
BEFORE = """
<ir_version: 9, opset_import: ["": 20]>
before (float[1, {T}, {F}] x, int64[1] offset, int64[1] required_cache_size,
        float[{attn}] attn_cache, float[{conv}] conv_cache, bool[1, 1, {MC}] attn_mask)
    => (float[1, {T}, {F}] feats, int64[1] lengths, {state}, int64[1] state_position)
{{
  feats = Identity (x)
  lengths = Constant <value_ints = [{T}]> ()
  attn_numbers = Constant <value_ints = [1, {caches[0]}]> ()
  attn_row = Reshape <allowzero = 1> (attn_cache, attn_numbers)
  conv_numbers = Constant <value_ints = [1, {caches[1]}]> ()
  conv_row = Reshape <allowzero = 1> (conv_cache, conv_numbers)
  rows = Concat <axis = 1> (attn_row, conv_row)
  sizes = Constant <value_ints = {sizes}> ()
  {parts}, unused = Split <axis = 1> (rows, sizes)
  streams = Constant <value_ints = [1]> ()
  {unpacked}
  left_context = Constant <value_ints = [{M}]> ()
  state_position = Sub (offset, left_context)
}}
"""

# A graph from the export's outputs to those of sherpa-onnx.
AFTER = """
<ir_version: 9, opset_import: ["": 20]>
after (float[1, E, {V}] log_probs, {news})
    => (float[1, E, {V}] logprobs, float[{attn}] new_attn_cache, float[{conv}] new_conv_cache)
{{
  logprobs = Identity (log_probs)
  streams = Constant <value_ints = [1]> ()
  {packed}
  unused_shape = Constant <value_ints = [1, {unused}]> ()
  unused = ConstantOfShape (unused_shape)
  rows = Concat <axis = 1> ({parts}, unused)
  sizes = Constant <value_ints = {caches}> ()
  attn_row, conv_row = Split <axis = 1> (rows, sizes)
  attn_shape = Constant <value_ints = [{attn}]> ()
  new_attn_cache = Reshape <allowzero = 1> (attn_row, attn_shape)
  conv_shape = Constant <value_ints = [{conv}]> ()
  new_conv_cache = Reshape <allowzero = 1> (conv_row, conv_shape)
}}
"""


def check(file: ModelFile, exported: Exported) -> None:
    """Raise UserError for a model or a context that sherpa-onnx cannot run."""
    check_streams(file, exported)
    encoder, (chunk, left, _) = file.model.encoder, exported.context
    if encoder.rate.factor != FACTOR:
        raise UserError(
            f"sherpa-onnx needs encoder frames of {FACTOR}0 ms, this model's have "
            f"{encoder.rate.frame_ms} ms: use a model with subsampling by {FACTOR}"
        )
    if encoder.rate.lookahead:
        kind = file.config.model.subsampling.kind
        raise UserError(
            f"sherpa-onnx needs a subsampling without look-ahead, this model has {kind}"
        )
    if left % chunk:
        raise UserError(
            "--left-ms must be a multiple of --chunk-ms for sherpa-onnx, got "
            f"{left * exported.frame_ms} and {chunk * exported.frame_ms}"
        )
    state = encoder.init_state(1, left)
    if not state.conv.numel():
        raise UserError(
            "sherpa-onnx's wenet-ctc needs layers with convolutions, this model's have none: train "
            "with model.frontend=sherpa_nemo for the layout of NeMo"
        )
    if state.keys.shape != state.values.shape:
        raise UserError("sherpa-onnx's wenet-ctc needs keys as wide as values")


def wired(paths: Sequence[Path], file: ModelFile, exported: Exported) -> list["ModelProto"]:
    """Convert an export to sherpa-onnx's layout, with sherpa-onnx's metadata.

    Args:
        paths: the one export, of log-probabilities from features.
    """
    import onnx
    from onnx import helper

    (path,) = paths
    encoder, (chunk, left, _) = file.model.encoder, exported.context
    shapes = parts_of(file, exported)
    del shapes["lead"]  # of windows; this layout has whole steps
    heads, kernel = shapes["state_keys"][1], shapes["state_conv"][2] + 1
    attn = [heads, left, 2 * encoder.dim // heads]  # of a block, whose sizes sherpa-onnx computes
    conv = [1, encoder.dim, kernel - 1]
    numbers = [math.prod(shape) for shape in shapes.values()]
    blocks = -(-sum(numbers) // (math.prod(attn) + math.prod(conv)))
    caches = [blocks * math.prod(attn), blocks * math.prod(conv)]
    unused, names = sum(caches) - sum(numbers), ", ".join(f"flat_{name}" for name in shapes)
    values = {
        "T": encoder.rate.step_frames(exported.context), "F": encoder.num_mels, "M": left,
        "MC": left + chunk, "V": file.tokenizer.vocab_size, "parts": names, "unused": unused,
        "attn": ", ".join(map(str, [blocks, *attn])), "conv": ", ".join(map(str, [blocks, *conv])),
        "sizes": [*numbers, unused], "caches": caches, "state": typed(shapes),
        "news": typed({f"new_{name}": shape for name, shape in shapes.items()}),
        "unpacked": unpacked(shapes), "packed": packed(shapes),
    }  # fmt: skip
    model = between(BEFORE.format(**values), onnx.load(path), AFTER.format(**values), [])
    # sherpa-onnx computes the size of a window: (C - 1) * 4 + right_context + 1 frames.
    right_context = FACTOR - 1 + encoder.rate.ahead_frames(exported.context)
    helper.set_model_props(model, {key: str(value) for key, value in {
        "head": heads, "num_blocks": blocks, "output_size": encoder.dim,
        "cnn_module_kernel": kernel, "right_context": right_context,
        "subsampling_factor": FACTOR, "vocab_size": file.tokenizer.vocab_size,
        **file.terms.properties(),
    }.items()})  # fmt: skip
    return [model]
