"""The convolution of an int8 file is near the one in float32."""

import numpy as np
import pytest

from asrkit.export.int8 import FEWEST_CHANNELS, quantize_convolution

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def model_of(channels: int) -> "onnx.ModelProto":
    """The subsampling's second convolution alone."""
    draw = np.random.default_rng(channels)
    weight = draw.standard_normal((8, channels, 3, 3), dtype=np.float32)
    bias = 10 * draw.standard_normal(8, dtype=np.float32)
    node = onnx.helper.make_node(
        "Conv", ["hidden", "weight", "bias"], ["y"], strides=[2, 2], pads=[0, 1, 0, 1]
    )
    weights = {"weight": weight, "bias": bias}
    graph = onnx.helper.make_graph(
        [node], "convolution",
        [onnx.helper.make_tensor_value_info("hidden", 1, ["B", channels, "T", "F"])],
        [onnx.helper.make_tensor_value_info("y", 1, ["B", 8, "E", "G"])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    opset = onnx.helper.make_opsetid("", 20)
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)


def run(model: "onnx.ModelProto", hidden: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"hidden": hidden})[0]


@pytest.mark.parametrize(("frames", "mels"), [(33, 40), (1 + 4, 2), (1 + 2, 8)])
def test_near_the_convolution(frames: int, mels: int) -> None:
    model = model_of(FEWEST_CHANNELS)
    draw = np.random.default_rng(0)
    hidden = draw.standard_normal((3, FEWEST_CHANNELS, frames, mels), dtype=np.float32).clip(min=0)
    wanted = run(model, hidden)
    quantize_convolution(model)
    assert {node.op_type for node in model.graph.node} == {"convolution"}
    found = run(model, hidden)
    assert found.shape == wanted.shape == (3, 8, frames // 2, mels // 2)
    assert 1e-4 < np.abs(found - wanted).max() / np.abs(wanted).max() < 0.02


def test_few_channels_stay_as_they_are() -> None:
    model = model_of(FEWEST_CHANNELS - 1)
    before = model.SerializeToString()
    quantize_convolution(model)
    assert model.SerializeToString() == before
