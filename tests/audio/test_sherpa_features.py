"""The frontend sherpa_nemo, and the features of sherpa-onnx's package for a model of NeMo."""

from pathlib import Path

import numpy as np
import pytest

from asrkit.audio import build_frontend
from tests.conftest import speech

BASE, UNIT, LEAST = 1024, 4e-5, -20.0

# A model of the nemo-ctc layout whose labels are the digits of its features.
GRAPH = """<ir_version: 9, opset_import: ["": 20]>
digits (float[N, 80, 16] audio_signal, int64[N] length, float[N, 1, 1, 1] channel,
        float[N, 1, 1, 1] time, int64[N] known)
    => (float[N, P, 2049] log_probs, int64[N] new_length, float[N, 1, 1, 1] new_channel,
        float[N, 1, 1, 1] new_time, int64[N] new_known)
{
  start = Constant <value_ints = [0]> ()
  end = Constant <value_ints = [8]> ()
  axis = Constant <value_ints = [2]> ()
  step = Slice (audio_signal, start, end, axis)
  rows = Transpose <perm = [0, 2, 1]> (step)
  column = Constant <value_ints = [0, -1, 1]> ()
  numbers = Reshape (rows, column)
  offset = Constant <value_float = 20.0> ()
  units = Constant <value_float = 25000.0> ()
  positive = Add (numbers, offset)
  scaled = Mul (positive, units)
  rounded = Round (scaled)
  whole = Cast <to = 7> (rounded)
  base = Constant <value_int = 1024> ()
  high = Div (whole, base)
  rest = Mod (whole, base)
  low = Add (rest, base)
  pairs = Concat <axis = 2> (high, low)
  row = Constant <value_ints = [0, -1]> ()
  labels = Reshape (pairs, row)
  depth = Constant <value_int = 2049> ()
  values = Constant <value_floats = [-9.0, 0.0]> ()
  log_probs = OneHot <axis = 2> (labels, depth, values)
  new_length = Identity (length)
  new_channel = Identity (channel)
  new_time = Identity (time)
  new_known = Identity (known)
}"""


def computed(samples: np.ndarray, folder: Path) -> np.ndarray:
    """(T, F) as sherpa-onnx computes them."""
    onnx, sherpa_onnx = pytest.importorskip("onnx"), pytest.importorskip("sherpa_onnx")
    model = onnx.parser.parse_model(GRAPH)
    ones = {f"cache_last_{name}_dim{i}": "1" for name in ("channel", "time") for i in (1, 2, 3)}
    sizes = {"window_size": "16", "chunk_shift": "8", "subsampling_factor": "8"}
    onnx.helper.set_model_props(
        model, {**ones, **sizes, "vocab_size": str(2 * BASE), "normalize_type": ""}
    )
    onnx.save(model, folder / "model.onnx")
    symbols = [*map(str, range(2 * BASE)), "<blk>"]
    (folder / "tokens.txt").write_text(
        "".join(f"{symbol} {i}\n" for i, symbol in enumerate(symbols))
    )
    recognizer = sherpa_onnx.OnlineRecognizer.from_nemo_ctc(
        tokens=str(folder / "tokens.txt"), model=str(folder / "model.onnx"), num_threads=1
    )
    stream = recognizer.create_stream()
    stream.accept_waveform(16000, samples)
    stream.input_finished()
    while recognizer.is_ready(stream):
        recognizer.decode_stream(stream)
    digits = np.array([int(each) for each in recognizer.recognizer.get_result(stream).tokens])
    high, low = digits.reshape(-1, 2).T
    return ((high * BASE + low - BASE) * UNIT + LEAST).reshape(-1, 80)


@pytest.mark.parametrize(("kind", "least", "most"), [
    ("sherpa_nemo", 0.0, 1e-4), ("slaney", 0.5, 10.0), ("kaldi", 10.0, 50.0),
])  # fmt: skip
def test_features_are_sherpas(kind: str, least: float, most: float, tmp_path: Path) -> None:
    """The other kinds are the control."""
    samples = speech(1.0)
    expected = computed(samples, tmp_path)
    frontend = build_frontend(kind, 80)
    found, _ = frontend(samples[None], frontend.start(1))
    assert len(expected) == 88  # whole steps of 8, the last one without a window
    difference = np.abs(found[0, : len(expected)] - expected).max()
    assert least <= difference <= most
