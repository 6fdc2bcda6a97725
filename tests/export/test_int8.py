"""The convolution of an int8 file is near the one in float32."""

import numpy as np
import pytest
import torch

from asrkit.export.int8 import large_products, put_on_integers

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def model_of(nodes: list, shapes: dict, x: list, y: list) -> "onnx.ModelProto":
    """A graph from `hidden` to `y` with weights of these shapes, drawn at random."""
    draw = np.random.default_rng(0)
    graph = onnx.helper.make_graph(
        nodes, "graph",
        [onnx.helper.make_tensor_value_info("hidden", 1, x)],
        [onnx.helper.make_tensor_value_info("y", 1, y)],
        [onnx.numpy_helper.from_array(
            (10 if name == "bias" else 1) * draw.standard_normal(shape, dtype=np.float32), name
        ) for name, shape in shapes.items()],
    )  # fmt: skip
    opset = onnx.helper.make_opsetid("", 20)
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)


def convolution(channels: int) -> "onnx.ModelProto":
    """The subsampling's second convolution alone."""
    node = onnx.helper.make_node(
        "Conv", ["hidden", "weight", "bias"], ["y"], strides=[2, 2], pads=[0, 1, 0, 1]
    )
    shapes = {"weight": (8, channels, 3, 3), "bias": (8,)}
    return model_of([node], shapes, ["B", channels, "T", "F"], ["B", 8, "E", "G"])


def run(model: "onnx.ModelProto", hidden: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"hidden": hidden})[0]


@pytest.mark.parametrize(("frames", "mels"), [(33, 40), (1 + 4, 2), (1 + 2, 8)])
def test_near_the_convolution(frames: int, mels: int) -> None:
    model = convolution(96)
    draw = np.random.default_rng(0)
    hidden = draw.standard_normal((3, 96, frames, mels), dtype=np.float32).clip(min=0)
    wanted = run(model, hidden)
    put_on_integers(model, [*model.graph.node], {"hidden": (0.0, float(hidden.max()))})
    assert {node.op_type for node in model.graph.node} == {"QuantizeLinear", "convolution"}
    found = run(model, hidden)
    assert found.shape == wanted.shape == (3, 8, frames // 2, mels // 2)
    assert 1e-4 < np.abs(found - wanted).max() / np.abs(wanted).max() < 0.02
    # What is beyond the range that was measured is cut off: never wrapped around.
    assert np.isfinite(run(model, 10 * hidden)).all()
    assert np.abs(run(model, 10 * hidden)).max() < 20 * np.abs(wanted).max()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("columns", [16, 40, 48, 49, 53, 149])
def test_near_the_product(columns: int, bias: bool) -> None:
    """On a CPU with AMX, ONNX Runtime before 1.25 gave noise for 49 to 63 columns and 32 rows."""
    draw = np.random.default_rng(columns)
    nodes = [onnx.helper.make_node("MatMul", ["hidden", "weight"], ["product" if bias else "y"])]
    if bias:
        nodes.append(onnx.helper.make_node("Add", ["product", "bias"], ["y"]))
    shapes = {"weight": (96, columns), "bias": (columns,)}
    model = model_of(nodes, shapes, ["B", "T", 96], ["B", "T", columns])
    hidden = draw.standard_normal((3, 40, 96), dtype=np.float32)
    wanted = run(model, hidden)
    bounds = float(hidden.min()), float(hidden.max())
    put_on_integers(model, [model.graph.node[0]], {"hidden": bounds})
    assert "MatMul" not in {node.op_type for node in model.graph.node}
    found = run(model, hidden)
    assert found.shape == wanted.shape == (3, 40, columns)
    assert 1e-4 < np.abs(found - wanted).max() / np.abs(wanted).max() < 0.03


def test_which_products_are_large() -> None:
    """Linear layers by their shapes, and convolutions over at least 96 channels."""
    for channels, count in ((96, 1), (95, 0)):
        assert len(large_products(convolution(channels), torch.nn.Linear(3, 5))) == count
    for shape, count in (((3, 5), 1), ((5, 3), 0)):
        node = onnx.helper.make_node("MatMul", ["hidden", "weight"], ["y"])
        model = model_of([node], {"weight": shape}, ["B", shape[0]], ["B", shape[1]])
        assert len(large_products(model, torch.nn.Linear(3, 5))) == count
