"""Folders for sherpa-onnx in its layouts for models of NeMo: a transducer in three files, or CTC.

This module connects the exports for ONNX Runtime, in float32 or int8, to the inputs and outputs of
these layouts. A stream's state is packed into the caches: all numbers of the encoder's state, and
the feature frames that precede a window, are in `cache_last_channel`; `cache_last_channel_len`
counts encoder frames, so that the start of a stream is known. `cache_last_time` is not used.
sherpa-onnx fills all caches with zeros, passes windows of features, and begins each window
`chunk_shift` frames after the one before.

The labels are in sherpa-onnx's order: the blank is the last one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrkit.backends.export_metadata import Exported
from asrkit.errors import UserError
from asrkit.export import sherpa_graphs as graphs
from asrkit.model import TransducerHead
from asrkit.model.transducer import LSTMPredictor
from asrkit.model_file import ModelFile

if TYPE_CHECKING:
    from onnx import ModelProto

FRONTENDS = ("sherpa_nemo", "slaney")
MAX_SYMBOLS = 10  # most labels that sherpa-onnx writes in a frame

WIRES = graphs.Wires(
    inputs="""float[N, {F}, {W}] audio_signal, int64[N] length,
        float[N, 1, 1, {total}] cache_last_channel, float[N, 1, 1, 1] cache_last_time,
        int64[N] cache_last_channel_len""",
    reads="""x = Transpose <perm = [0, 2, 1]> (audio_signal)
  flat = Constant <value_ints = [0, -1]> ()
  rows = Reshape (cache_last_channel, flat)
  state_position = Identity (cache_last_channel_len)""",
    output="{encoded}",
    outputs="""{returned}, int64[N] encoded_lengths,
        float[N, 1, 1, {total}] cache_last_channel_next, float[N, 1, 1, 1] cache_last_time_next,
        int64[N] cache_last_channel_len_next""",
    writes="""{convert}
  encoded_lengths = Identity (frames)
  shape = Constant <value_ints = [0, 1, 1, {total}]> ()
  cache_last_channel_next = Reshape (rows, shape)
  ones = Constant <value_ints = [1, 1, 1]> ()
  unused = Concat <axis = 0> (streams, ones)
  cache_last_time_next = ConstantOfShape (unused)
  cache_last_channel_len_next = Identity (new_state_position)""",
)
OUTPUTS = {  # of the export, of sherpa-onnx, and the conversion
    "transducer": {
        "encoded": "float[N, E, {D}] encoded",
        "returned": "float[N, {D}, E] outputs",
        "convert": "outputs = Transpose <perm = [0, 2, 1]> (encoded)",
    },
    "ctc": {
        "encoded": "float[N, E, {V}] log_probs",
        "returned": "float[N, E, {V}] logprobs",
        "convert": """widths = Constant <value_ints = [1, {labels}]> ()
  blank, labels = Split <axis = 2> (log_probs, widths)
  logprobs = Concat <axis = 2> (labels, blank)""",
    },
}

# Label i of asrkit is i - 1 in sherpa-onnx, and the blank, 0, is V - 1: (i + 1) mod V goes back.
PREDICTOR = """
<ir_version: 9, opset_import: ["": 20]>
before (int32[N, 1] targets, int32[N] target_length, float[{L}, N, {H}] states_1,
        float[{L}, N, {H}] states_2)
    => (int64[N] tokens, float[N, {L}, {H}] state_0, float[N, {L}, {H}] state_1)
{{
  all = Constant <value_ints = [-1]> ()
  ids = Reshape (targets, all)
  whole = Cast <to = 7> (ids)
  one = Constant <value_int = 1> ()
  next = Add (whole, one)
  vocab_size = Constant <value_int = {V}> ()
  tokens = Mod (next, vocab_size)
  state_0 = Transpose <perm = [1, 0, 2]> (states_1)
  state_1 = Transpose <perm = [1, 0, 2]> (states_2)
}}
"""
PREDICTED = """
<ir_version: 9, opset_import: ["": 20]>
after (float[N, {J}] predicted, float[N, {L}, {H}] new_state_0, float[N, {L}, {H}] new_state_1)
    => (float[N, {J}, 1] outputs, int64[1] prednet_lengths, float[{L}, N, {H}] states,
        float[{L}, N, {H}] states_next)
{{
  last = Constant <value_ints = [2]> ()
  outputs = Unsqueeze (predicted, last)
  prednet_lengths = Constant <value_ints = [1]> ()
  states = Transpose <perm = [1, 0, 2]> (new_state_0)
  states_next = Transpose <perm = [1, 0, 2]> (new_state_1)
}}
"""
JOINER = """
<ir_version: 9, opset_import: ["": 20]>
before (float[N, {D}, 1] encoder_outputs, float[N, {J}, 1] decoder_outputs)
    => (float[N, {D}] frames, float[N, {J}] predicted)
{{
  last = Constant <value_ints = [2]> ()
  frames = Squeeze (encoder_outputs, last)
  predicted = Squeeze (decoder_outputs, last)
}}
"""
JOINED = """
<ir_version: 9, opset_import: ["": 20]>
after (float[N, {V}] logits) => (float[N, 1, 1, {V}] outputs)
{{
  widths = Constant <value_ints = [1, {labels}]> ()
  blank, labels = Split <axis = 1> (logits, widths)
  rolled = Concat <axis = 1> (labels, blank)
  middle = Constant <value_ints = [1, 2]> ()
  outputs = Unsqueeze (rolled, middle)
}}
"""


def check(file: ModelFile, exported: Exported) -> None:
    """Raise UserError for a model or a context that these layouts cannot hold."""
    head, kind = file.model.head, file.config.model.frontend.kind
    if kind not in FRONTENDS:
        raise UserError(
            f"sherpa-onnx computes NeMo's features for this layout, this model has the frontend "
            f"{kind}: train with model.frontend={FRONTENDS[0]}"
        )
    if isinstance(head, TransducerHead) and not isinstance(head.predictor, LSTMPredictor):
        raise UserError(
            "sherpa-onnx's layout for models of NeMo holds an LSTM, this model has a stateless "
            "predictor: train with model.frontend=kaldi and model.head.max_symbols=1"
        )
    graphs.check_streams(file, exported, max_symbols=MAX_SYMBOLS)


def wired(paths: Sequence[Path], file: ModelFile, exported: Exported) -> list["ModelProto"]:
    """Convert the exports at these paths to sherpa-onnx's layout, with sherpa-onnx's metadata.

    Args:
        paths: encoder, predictor and joiner; for CTC one export from features.
    """
    head, about = file.model.head, metadata(file, exported)
    sizes = {"D": file.model.encoder.dim, "V": head.vocab_size, "labels": head.vocab_size - 1}
    texts = {name: text.format(**sizes) for name, text in OUTPUTS[exported.what].items()}
    encoder = graphs.encoder_graph(paths[0], file, exported, WIRES, **texts)
    parts = []
    if isinstance(head, TransducerHead):
        sizes |= {"L": about["pred_rnn_layers"], "H": about["pred_hidden"]}
        sizes["J"] = head.from_predictor.out_features
        parts = [
            graphs.describe(graphs.between(before.format(**sizes), path, after.format(**sizes)))
            for before, path, after in zip(
                (PREDICTOR, JOINER), paths[1:], (PREDICTED, JOINED), strict=True
            )
        ]
    return [graphs.describe(encoder, **about), *parts]


def metadata(file: ModelFile, exported: Exported) -> dict[str, Any]:
    """Return the metadata of the encoder, from which sherpa-onnx reads all sizes."""
    head, windows = file.model.head, graphs.windows_of(file.model.encoder, exported)
    about: dict[str, Any] = {
        "vocab_size": head.vocab_size - 1, "window_size": windows.size,
        "chunk_shift": windows.shift, "subsampling_factor": file.model.encoder.rate.factor,
        "normalize_type": "",
    }  # fmt: skip
    for name, width in (("channel", graphs.total_of(file, exported)), ("time", 1)):
        about |= {f"cache_last_{name}_dim{i}": (1, 1, width)[i - 1] for i in (1, 2, 3)}
    if isinstance(head, TransducerHead):
        layers, width = head.start(1)[0].shape[1:]
        about |= {"pred_rnn_layers": layers, "pred_hidden": width}
    return about | file.terms.properties()
