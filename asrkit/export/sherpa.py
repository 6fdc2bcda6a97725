"""Folders for sherpa-onnx, which runs on phones, boards and in browsers.

sherpa-onnx's `wenet-ctc` layout has one cache for attention and one for convolutions. This module
connects an export for ONNX Runtime, in float32 or int8, to these caches. Keys and values are rows
of the first, pasts of convolutions are rows of the second, and the past of the subsampling fills
additional rows of the second. The greedy search and the initial state (zeros) equal asrkit's.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.backends.export_metadata import Exported
from asrkit.errors import UserError
from asrkit.export.sherpa_graphs import between, check_streams
from asrkit.model import EncoderState
from asrkit.model_file import ModelFile

if TYPE_CHECKING:
    from onnx import ModelProto

FACTOR = 4  # sherpa-onnx computes times as if every frame had 40 ms

# A graph from sherpa-onnx's inputs to those of the export: one stream, a chunk at a time.
BEFORE = """
<ir_version: 9, opset_import: ["": 20]>
before (float[1, {T}, {F}] x, int64[1] offset, int64[1] required_cache_size,
        float[{N}, {H}, {M}, {W}] attn_cache, float[{N}, 1, {D}, {K}] conv_cache,
        bool[1, 1, {MC}] attn_mask)
    => (float[1, {T}, {F}] feats, int64[1] lengths, float[1, 1, {F}] state_feats,
        float[{hidden_shape}] state_hidden, float[1, {L}, {H}, {M}, {Dh}] state_keys,
        float[1, {L}, {H}, {M}, {Dh}] state_values, float[1, {L}, {D}, {K}] state_conv,
        int64[1] state_position, float[{R}, {H}, {M}, {W}] attn_rest)
{{
  feats = Identity (x)
  lengths = Constant <value_ints = [{T}]> ()
  layers = Constant <value_ints = [{L}, {R}]> ()
  attn, attn_rest = Split <axis = 0> (attn_cache, layers)
  conv, packed = Split <axis = 0> (conv_cache, layers)

  first = Constant <value_ints = [0]> ()
  both = Unsqueeze (attn, first)
  widths = Constant <value_ints = [{Dh}, {Dh}]> ()
  state_keys, state_values = Split <axis = 4> (both, widths)
  state_conv = Transpose <perm = [1, 0, 2, 3]> (conv)

  numbers = Constant <value_ints = [-1]> ()
  flat = Reshape (packed, numbers)
  sizes = Constant <value_ints = [{F}, {hidden}, {left_over}]> ()
  flat_feats, flat_hidden, unused = Split <axis = 0> (flat, sizes)
  feats_shape = Constant <value_ints = [1, 1, {F}]> ()
  state_feats = Reshape (flat_feats, feats_shape)
  hidden_shape = Constant <value_ints = [{hidden_shape}]> ()
  state_hidden = Reshape (flat_hidden, hidden_shape)

  left_context = Constant <value_ints = [{M}]> ()
  state_position = Sub (offset, left_context)
}}
"""

# A graph from the export's outputs to those of sherpa-onnx.
AFTER = """
<ir_version: 9, opset_import: ["": 20]>
after (float[1, E, {V}] log_probs, float[1, 1, {F}] new_state_feats,
       float[{hidden_shape}] new_state_hidden, float[1, {L}, {H}, {M}, {Dh}] new_state_keys,
       float[1, {L}, {H}, {M}, {Dh}] new_state_values,
       float[1, {L}, {D}, {K}] new_state_conv, float[{R}, {H}, {M}, {W}] attn_rest)
    => (float[1, E, {V}] logprobs, float[{N}, {H}, {M}, {W}] new_attn_cache,
        float[{N}, 1, {D}, {K}] new_conv_cache)
{{
  logprobs = Identity (log_probs)
  both = Concat <axis = 4> (new_state_keys, new_state_values)
  first = Constant <value_ints = [0]> ()
  attn = Squeeze (both, first)
  new_attn_cache = Concat <axis = 0> (attn, attn_rest)

  numbers = Constant <value_ints = [-1]> ()
  flat_feats = Reshape (new_state_feats, numbers)
  flat_hidden = Reshape (new_state_hidden, numbers)
  left_over = Constant <value_ints = [{left_over}]> ()
  unused = ConstantOfShape (left_over)
  flat = Concat <axis = 0> (flat_feats, flat_hidden, unused)
  packed_shape = Constant <value_ints = [{R}, 1, {D}, {K}]> ()
  packed = Reshape (flat, packed_shape)
  conv = Transpose <perm = [1, 0, 2, 3]> (new_state_conv)
  new_conv_cache = Concat <axis = 0> (conv, packed)
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


def sizes_of(file: ModelFile, exported: Exported) -> dict[str, int | str]:
    """Return the numbers in the two graphs."""
    encoder = file.model.encoder
    (chunk, left, _), step = exported.context, encoder.rate.step_frames(exported.context)
    state: EncoderState = encoder.init_state(1, left)
    layers, width = state.conv.size(1), state.conv[0, 0].numel()
    packed = state.feats.numel() + state.hidden.numel()
    rows = max(1, math.ceil(packed / width))
    head_dim = state.keys.size(4)
    return {
        "T": step, "F": encoder.num_mels, "L": layers, "R": rows,
        "N": layers + rows, "H": state.keys.size(2), "M": left, "Dh": head_dim,
        "W": 2 * head_dim, "MC": left + chunk, "D": state.conv.size(2),
        "K": state.conv.size(3), "hidden": state.hidden.numel(),
        "hidden_shape": ", ".join(map(str, state.hidden.shape)), "left_over": rows * width - packed,
        "V": file.tokenizer.vocab_size,
    }  # fmt: skip


def wired(paths: Sequence[Path], file: ModelFile, exported: Exported) -> list["ModelProto"]:
    """Convert an export to sherpa-onnx's layout, with sherpa-onnx's metadata.

    Args:
        paths: the one export, of log-probabilities from features.
    """
    import onnx
    from onnx import helper

    (path,) = paths
    rate, sizes = file.model.encoder.rate, sizes_of(file, exported)
    before, after = BEFORE.format(**sizes), AFTER.format(**sizes)
    model = between(before, onnx.load(path), after, ["attn_rest"])
    # sherpa-onnx computes the size of a window: (C - 1) * 4 + right_context + 1 frames.
    right_context = rate.factor - 1 + rate.ahead_frames(exported.context)
    helper.set_model_props(model, {key: str(value) for key, value in {
        "head": sizes["H"], "num_blocks": sizes["N"], "output_size": sizes["D"],
        "cnn_module_kernel": int(sizes["K"]) + 1, "right_context": right_context,
        "subsampling_factor": rate.factor, "vocab_size": file.tokenizer.vocab_size,
        **file.terms.properties(),
    }.items()})  # fmt: skip
    return [model]
