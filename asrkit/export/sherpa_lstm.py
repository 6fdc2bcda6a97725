"""Folders for sherpa-onnx in its layout of icefall's LSTM transducers, for stateless predictors.

sherpa-onnx computes Kaldi's features for this layout, writes at most one label in a frame, and has
a beam search, hotwords and language models for it. Its two states of the encoder, `h` and `c`, are
zeros at first, and their sizes are free: `h` has the encoder's state and the feature frames before
a window, `c` the number of frames so far. The decoder gets the last labels, -1 where there are
none; asrkit's predictor reads blanks there. The labels have asrkit's order, with the blank first.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.backends.export_metadata import Exported
from asrkit.errors import UserError
from asrkit.export.sherpa import FACTOR
from asrkit.export.sherpa_graphs import between, check_streams, encoder_graph, total_of, windows_of
from asrkit.model import TransducerHead
from asrkit.model.transducer import StatelessPredictor
from asrkit.model_file import ModelFile

if TYPE_CHECKING:
    from onnx import ModelProto

MAX_SYMBOLS = 1  # most labels that sherpa-onnx writes in a frame
MOST_COUNTED = 1 << 20  # frames in the second number of `c`; a float counts to 1 << 24

# From sherpa-onnx's inputs to those of the export. N streams; windows of W frames.
BEFORE = """
<ir_version: 9, opset_import: ["": 20]>
before (float[N, {W}, {F}] x, float[1, N, {total}] h, float[1, N, 2] c)
    => (float[N, {step}, {F}] feats, int64[N] lengths, {state}, int64[N] state_position,
        float[N, {lead}, {F}] new_lead)
{{
  streams = Shape <start = 0, end = 1> (x)
  layer = Constant <value_ints = [0]> ()
  flat = Squeeze (h, layer)
  sizes = Constant <value_ints = {sizes}> ()
  {parts} = Split <axis = 1> (flat, sizes)
  {reshapes}

  {window}

  counts = Squeeze (c, layer)
  whole = Cast <to = 7> (counts)
  weights = Constant <value_ints = [{most}, 1]> ()
  weighted = Mul (whole, weights)
  state_position = ReduceSum <keepdims = 0> (weighted, time)
}}
"""

# From the export's outputs to those of sherpa-onnx.
AFTER = """
<ir_version: 9, opset_import: ["": 20]>
after (float[N, E, {D}] encoded, int64[N] frames, {state}, int64[N] new_state_position,
       float[N, {lead}, {F}] new_lead)
    => (float[N, E, {D}] encoder_out, float[1, N, {total}] next_h, float[1, N, 2] next_c)
{{
  streams = Shape <start = 0, end = 1> (frames)
  {reshapes}
  flat = Concat <axis = 1> ({parts})
  layer = Constant <value_ints = [0]> ()
  next_h = Unsqueeze (flat, layer)
  most = Constant <value_int = {most}> ()
  high = Div (new_state_position, most)
  low = Mod (new_state_position, most)
  last = Constant <value_ints = [1]> ()
  highs = Unsqueeze (high, last)
  lows = Unsqueeze (low, last)
  whole = Concat <axis = 1> (highs, lows)
  counts = Cast <to = 1> (whole)
  next_c = Unsqueeze (counts, layer)
  encoder_out = Identity (encoded)
}}
"""
PREDICTOR = """
<ir_version: 9, opset_import: ["": 20]>
before (int64[N, {C}] y) => (int64[N] tokens, int64[N, {known}] state_0)
{{
  blank = Constant <value_int = 0> ()
  labels = Max (y, blank)
  sizes = Constant <value_ints = [{known}, 1]> ()
  state_0, token = Split <axis = 1> (labels, sizes)
  last = Constant <value_ints = [1]> ()
  tokens = Squeeze (token, last)
}}
"""
PREDICTED = """
<ir_version: 9, opset_import: ["": 20]>
after (float[N, {J}] predicted) => (float[N, {J}] decoder_out)
{{
  decoder_out = Identity (predicted)
}}
"""


def fits(file: ModelFile) -> bool:
    """Return whether this layout is the one for a transducer: Kaldi's features, no LSTM."""
    head = file.model.head
    stateless = isinstance(head, TransducerHead) and isinstance(head.predictor, StatelessPredictor)
    return stateless and file.config.model.frontend.kind == "kaldi"


def check(file: ModelFile, exported: Exported) -> None:
    """Raise UserError for a model or a context that this layout cannot hold."""
    head, encoder, tokenizer = file.model.head, file.model.encoder, file.tokenizer
    assert isinstance(head, TransducerHead)
    check_streams(file, exported)
    if encoder.rate.factor != FACTOR:
        raise UserError(
            f"sherpa-onnx needs encoder frames of {FACTOR}0 ms for Kaldi's features, this model's "
            f"have {encoder.rate.frame_ms} ms: use a model with subsampling by {FACTOR}"
        )
    if head.max_symbols != MAX_SYMBOLS:
        raise UserError(
            f"sherpa-onnx writes at most {MAX_SYMBOLS} label in a frame for models with Kaldi's "
            f"features: model.head.max_symbols must be {MAX_SYMBOLS}, got {head.max_symbols}"
        )
    if "<unk>" in map(tokenizer.piece, range(1, tokenizer.vocab_size)):
        raise UserError("sherpa-onnx reads the label <unk> as a blank in this layout")


def wired(paths: Sequence[Path], file: ModelFile, exported: Exported) -> list["ModelProto"]:
    """Convert the exports at these paths to sherpa-onnx's layout, with sherpa-onnx's metadata.

    Args:
        paths: encoder, predictor and joiner.
    """
    import onnx
    from onnx import helper

    encoder, predictor, joiner = (onnx.load(path) for path in paths)
    head, windows = file.model.head, windows_of(file.model.encoder, exported)
    assert isinstance(head, TransducerHead)
    about: list[dict[str, object]] = [
        {
            "model_type": "lstm", "num_encoder_layers": 1, "T": windows.size,
            "decode_chunk_len": windows.shift, "d_model": total_of(file, exported),
            "rnn_hidden_size": 2, **file.terms.properties(),
        },
        {"vocab_size": head.vocab_size, "context_size": head.start(1)[0].size(1) + 1},
        {"joiner_dim": head.from_predictor.out_features},
    ]  # fmt: skip
    models = [
        encoder_graph(encoder, file, exported, (BEFORE, AFTER), ["new_lead"], most=MOST_COUNTED),
        predictor_graph(predictor, head),
        joiner,
    ]
    for model, values in zip(models, about, strict=True):
        helper.set_model_props(model, {key: str(value) for key, value in values.items()})
    return models


def predictor_graph(core: "ModelProto", head: TransducerHead) -> "ModelProto":
    """Return the graph of the predictor, which sherpa-onnx calls the decoder."""
    known = head.start(1)[0].size(1)
    sizes = {"C": known + 1, "known": known, "J": head.from_predictor.out_features}
    return between(PREDICTOR.format(**sizes), core, PREDICTED.format(**sizes), [])
