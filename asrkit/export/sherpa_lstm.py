"""Folders for sherpa-onnx in its layout of icefall's LSTM transducers, for stateless predictors.

sherpa-onnx computes Kaldi's features for this layout, writes at most one label in a frame, and has
a beam search, hotwords and language models for it. Its two states of the encoder, `h` and `c`, are
zeros at first, and their sizes are free: `h` has the encoder's state and the feature frames before
a window, `c` the number of frames so far, which a float counts for a week. The decoder gets the
last labels, and -1 before the first label; asrkit's predictor reads blanks there. The labels have
asrkit's order, with the blank first.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.backends.export_metadata import Exported
from asrkit.errors import UserError
from asrkit.export import sherpa_graphs as graphs
from asrkit.model import TransducerHead
from asrkit.model.transducer import StatelessPredictor
from asrkit.model_file import ModelFile

if TYPE_CHECKING:
    from onnx import ModelProto

MAX_SYMBOLS = 1  # most labels that sherpa-onnx writes in a frame

WIRES = graphs.Wires(
    inputs="float[N, {W}, {F}] x, float[1, N, {total}] h, float[1, N, 1] c",
    reads="""layer = Constant <value_ints = [0]> ()
  rows = Squeeze (h, layer)
  sides = Constant <value_ints = [0, 2]> ()
  count = Squeeze (c, sides)
  state_position = Cast <to = 7> (count)""",
    output="float[N, E, {D}] encoded",
    outputs="float[N, E, {D}] encoder_out, float[1, N, {total}] next_h, float[1, N, 1] next_c",
    writes="""encoder_out = Identity (encoded)
  layer = Constant <value_ints = [0]> ()
  next_h = Unsqueeze (rows, layer)
  sides = Constant <value_ints = [0, 2]> ()
  count = Cast <to = 1> (new_state_position)
  next_c = Unsqueeze (count, sides)""",
)
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
    graphs.check_streams(file, exported, is_by_4=True, max_symbols=MAX_SYMBOLS)
    if "<unk>" in map(file.tokenizer.piece, range(1, file.tokenizer.vocab_size)):
        raise UserError("sherpa-onnx reads the label <unk> as a blank in this layout")


def wired(paths: Sequence[Path], file: ModelFile, exported: Exported) -> list["ModelProto"]:
    """Convert the exports at these paths to sherpa-onnx's layout, with sherpa-onnx's metadata.

    Args:
        paths: encoder, predictor and joiner.
    """
    import onnx

    head, windows = file.model.head, graphs.windows_of(file.model.encoder, exported)
    assert isinstance(head, TransducerHead)
    known, width = head.start(1)[0].size(1), head.from_predictor.out_features
    sizes = {"C": known + 1, "known": known, "J": width}
    predictor = graphs.between(PREDICTOR.format(**sizes), paths[1], PREDICTED.format(**sizes))
    return [
        graphs.describe(
            graphs.encoder_graph(paths[0], file, exported, WIRES),
            model_type="lstm", num_encoder_layers=1, T=windows.size, rnn_hidden_size=1,
            decode_chunk_len=windows.shift, d_model=graphs.total_of(file, exported),
            **file.terms.properties(),
        ),
        graphs.describe(predictor, vocab_size=head.vocab_size, context_size=known + 1),
        graphs.describe(onnx.load(paths[2]), joiner_dim=width),
    ]  # fmt: skip
