"""A graph that the installed ONNX Runtime cannot run."""

from pathlib import Path

import pytest

from asrkit.backends.onnx import OnnxStep, read_graph
from asrkit.errors import UserError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def test_an_operation_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Position encodings of kind compact need an arctangent of float64, for example."""
    node = onnx.helper.make_node("Cos", ["x"], ["y"])
    values = [
        onnx.helper.make_tensor_value_info(each, onnx.TensorProto.BFLOAT16, [1]) for each in "xy"
    ]
    graph = onnx.helper.make_graph([node], "cosine", values[:1], values[1:])
    opset = onnx.helper.make_opsetid("", 22)
    path = tmp_path / "a.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10), path)
    expected = r"onnxruntime [\d.]+ cannot run this export, .*pip install --upgrade .*Cos"
    with pytest.raises(UserError, match=expected):
        read_graph(path, OnnxStep)
