"""The large products of an ONNX file on integers: weights of seven bits, inputs of eight.

With weights of eight bits sums overflow on CPUs without VNNI.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from asrkit.export.description import KEY
from asrkit.export.onnx import need, quiet

if TYPE_CHECKING:
    from onnx import ModelProto

FEWEST_CHANNELS = 96  # of a convolution that is faster so: of 64 by an eighth, of 32 not at all

# The subsampling's second convolution, (B, S, 1+2T, 2F) -> (B, O, T, F), as a product of its
# patches: the taps in frequency of each frame, (B, 1+2T, F, 3·S), then the frames of each patch,
# (B, T, F, 9·S). Inputs are quantised first: patches of bytes are a quarter to copy. ONNX Runtime
# has no fast convolution of a float input on integers.
PRODUCT = """
<domain: "asrkit", opset_import: ["": 20]>
convolution (hidden, weight, weight_scale, bias) => (convolved) {
  bytes, scale, zero = DynamicQuantizeLinear (hidden)
  frames = Transpose <perm = [0, 2, 3, 1]> (bytes)
  pads = Constant <value_ints = [0, 0, 1, 0, 0, 0, 0, 0]> ()
  padded = Pad (frames, pads, zero)

  start0 = Constant <value_ints = [0]> ()
  start1 = Constant <value_ints = [1]> ()
  start2 = Constant <value_ints = [2]> ()
  end0 = Constant <value_ints = [-2]> ()
  end1 = Constant <value_ints = [-1]> ()
  end2 = Constant <value_ints = [9223372036854775807]> ()
  time = Constant <value_ints = [1]> ()
  frequency = Constant <value_ints = [2]> ()
  stride = Constant <value_ints = [2]> ()
  low = Slice (padded, start0, end0, frequency, stride)
  middle = Slice (padded, start1, end1, frequency, stride)
  high = Slice (padded, start2, end2, frequency, stride)
  taps = Concat <axis = 3> (low, middle, high)
  first = Slice (taps, start0, end0, time, stride)
  second = Slice (taps, start1, end1, time, stride)
  third = Slice (taps, start2, end2, time, stride)
  patches = Concat <axis = 3> (first, second, third)

  sums = MatMulInteger (patches, weight, zero)
  numbers = Cast <to = 1> (sums)
  scales = Mul (scale, weight_scale)
  product = Mul (numbers, scales)
  rows = Add (product, bias)
  convolved = Transpose <perm = [0, 3, 1, 2]> (rows)
}
"""


def quantize(path: str | Path, target: str | Path, module: nn.Module) -> None:
    """The file of a module with its linear layers and its large convolution on integers.

    Each column of weights has its scale; inputs are quantised as they come.
    """
    need("onnx", "onnxruntime")
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(path)
    # Position tables are matrices too, in some encodings: linear layers are known by their shapes.
    shapes = {m.weight.shape for m in module.modules() if isinstance(m, nn.Linear)}
    shapes |= {shape[::-1] for shape in shapes}
    matrices = {each.name for each in model.graph.initializer if tuple(each.dims) in shapes}
    linear = [node.name for node in model.graph.node if matrices.intersection(node.input[1:2])]
    with quiet():
        quantize_dynamic(
            model, target, op_types_to_quantize=["MatMul", "Gemm"], nodes_to_quantize=linear,
            per_channel=True, reduce_range=True, weight_type=QuantType.QInt8,
        )  # fmt: skip
    model = onnx.load(target)
    quantize_convolution(model)
    (description,) = (each for each in model.metadata_props if each.key == KEY)
    description.value = json.dumps(json.loads(description.value) | {"precision": "int8"})
    onnx.save(model, target)


def quantize_convolution(model: "ModelProto") -> None:
    """PRODUCT in place of the 3x3 convolution over channels, if they are many."""
    from onnx import helper, numpy_helper, parser

    weights = {each.name: each for each in model.graph.initializer}
    for node in [node for node in model.graph.node if node.op_type == "Conv"]:
        hidden, name, bias = node.input
        weight = numpy_helper.to_array(weights[name])  # (O, S, 3, 3)
        if weight.shape[2:] != (3, 3) or weight.shape[1] < FEWEST_CHANNELS:
            continue
        columns = weight.transpose(2, 3, 1, 0).reshape(-1, len(weight))  # (9·S, O)
        scale = np.abs(columns).max(axis=0).clip(min=1e-20) / 63  # (O,)
        quantized = {
            f"{name}_quantized": np.rint(columns / scale).astype(np.int8),
            f"{name}_scale": scale,
        }
        model.graph.initializer.remove(weights[name])
        model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in quantized.items())
        node.CopyFrom(
            helper.make_node(
                "convolution", [hidden, *quantized, bias], node.output, domain="asrkit"
            )
        )
        model.functions.append(parser.parse_function(PRODUCT))
        model.opset_import.append(helper.make_opsetid("asrkit", 1))
