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
from asrkit.export import sherpa_graphs as graphs
from asrkit.model_file import ModelFile

if TYPE_CHECKING:
    from onnx import ModelProto

WIRES = graphs.Wires(
    inputs="""float[N, {W}, {F}] x, int64[1] offset, int64[1] required_cache_size,
        float[{attn}] attn_cache, float[{conv}] conv_cache, bool[1, 1, {MC}] attn_mask""",
    reads="""attn_numbers = Constant <value_ints = [1, {caches[0]}]> ()
  attn_row = Reshape <allowzero = 1> (attn_cache, attn_numbers)
  conv_numbers = Constant <value_ints = [1, {caches[1]}]> ()
  conv_row = Reshape <allowzero = 1> (conv_cache, conv_numbers)
  caches = Concat <axis = 1> (attn_row, conv_row)
  used = Constant <value_ints = [{total}, {unused}]> ()
  rows, rest = Split <axis = 1> (caches, used)
  left_context = Constant <value_ints = [{M}]> ()
  state_position = Sub (offset, left_context)""",
    output="float[N, E, {V}] log_probs",
    outputs="""float[N, E, {V}] logprobs, float[{attn}] new_attn_cache,
        float[{conv}] new_conv_cache""",
    writes="""logprobs = Identity (log_probs)
  rest_shape = Constant <value_ints = [1, {unused}]> ()
  rest = ConstantOfShape (rest_shape)
  caches = Concat <axis = 1> (rows, rest)
  sizes = Constant <value_ints = {caches}> ()
  attn_row, conv_row = Split <axis = 1> (caches, sizes)
  attn_shape = Constant <value_ints = [{attn}]> ()
  new_attn_cache = Reshape <allowzero = 1> (attn_row, attn_shape)
  conv_shape = Constant <value_ints = [{conv}]> ()
  new_conv_cache = Reshape <allowzero = 1> (conv_row, conv_shape)""",
)


def check(file: ModelFile, exported: Exported) -> None:
    """Raise UserError for a model or a context that sherpa-onnx cannot run."""
    graphs.check_streams(file, exported, is_by_4=True)
    encoder, (chunk, left, _) = file.model.encoder, exported.context
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
    encoder, (chunk, left, _) = file.model.encoder, exported.context
    shapes, total = graphs.parts_of(file, exported), graphs.total_of(file, exported)
    heads, kernel = shapes["state_keys"][1], shapes["state_conv"][2] + 1
    attn = [heads, left, 2 * encoder.dim // heads]  # of a block, whose sizes sherpa-onnx computes
    conv = [1, encoder.dim, kernel - 1]
    blocks = -(-total // (math.prod(attn) + math.prod(conv)))
    caches = [blocks * math.prod(attn), blocks * math.prod(conv)]
    model = graphs.encoder_graph(
        paths[0], file, exported, WIRES, M=left, MC=left + chunk, caches=caches,
        unused=sum(caches) - total, attn=", ".join(map(str, [blocks, *attn])),
        conv=", ".join(map(str, [blocks, *conv])),
    )  # fmt: skip
    # sherpa-onnx computes the size of a window: (C - 1) * 4 + right_context + 1 frames.
    right_context = graphs.FACTOR - 1 + encoder.rate.ahead_frames(exported.context)
    return [graphs.describe(
        model, head=heads, num_blocks=blocks, output_size=encoder.dim, cnn_module_kernel=kernel,
        right_context=right_context, subsampling_factor=graphs.FACTOR,
        vocab_size=file.tokenizer.vocab_size, **file.terms.properties(),
    )]  # fmt: skip
