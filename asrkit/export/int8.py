"""Int8 ONNX files: large products use integers, with weights of 7 bits and inputs of 8 bits.

Inputs are rounded to steps that were measured on recordings when the file was exported. Dynamic
quantisation would compute new steps for every batch: a stream's numbers would depend on the other
streams of its batch and on the number of chunks per step. With chunks of a single frame they still
do, slightly: ONNX Runtime multiplies single rows in another order, and rounding amplifies this.

Weights of 8 bits would overflow sums on CPUs without VNNI.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from torch import nn

from asrkit.backends.export_metadata import KEY, data_path
from asrkit.backends.onnx import OnnxGraph, open_session

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Range = tuple[float, float]  # least and largest

FEWEST_CHANNELS = 96  # smaller convolutions gain little: 64 channels an eighth, 32 nothing

# The subsampling's second convolution, (B, S, 1+2T, 2F) -> (B, O, T, F), as a matrix product of its
# patches. First the frequency taps of each frame are joined, (B, 1+2T, F, 3·S), then the frames of
# each patch, (B, T, F, 9·S). Patches are bytes, a quarter of the size of floats. ONNX Runtime has
# no fast convolution from integers to floats.
CONVOLUTION = """
<domain: "asrkit", opset_import: ["": 20, "com.microsoft": 1]>
convolution (bytes, weight, scale, weight_scale, zero, bias) => (convolved) {
  frames = Transpose <perm = [0, 2, 3, 1]> (bytes)
  pads = Constant <value = int64[8] {0, 0, 1, 0, 0, 0, 0, 0}> ()
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

  rows = com.microsoft.MatMulIntegerToFloat (patches, weight, scale, weight_scale, zero, , bias)
  convolved = Transpose <perm = [0, 3, 1, 2]> (rows)
}
"""


class ObservedStep(OnnxGraph):
    """A float32 file's step that records the range of each large product's inputs."""

    def __init__(self, path: Path, module: nn.Module) -> None:
        import onnx

        model = onnx.load(path, load_external_data=False)
        inputs = sorted({node.input[0] for node in large_products(model, module)})
        for name in inputs:
            for kind in ("ReduceMin", "ReduceMax"):
                output = f"{name}_{kind}"
                model.graph.node.append(onnx.helper.make_node(kind, [name], [output], keepdims=0))
                model.graph.output.append(
                    onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, [])
                )
        observed = path.with_name(f"{path.name}.observed")  # beside the weights of a large file
        onnx.save(model, observed)
        super().__init__(*open_session(str(observed)))
        observed.unlink()
        self.ranges: dict[str, Range] = dict.fromkeys(inputs, (0.0, 0.0))

    def run(self, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
        outputs = super().run(arrays)
        count = 2 * len(self.ranges)
        bounds = np.array(outputs[-count:], dtype=np.float64).reshape(-1, 2).tolist()
        for (name, (least, most)), (low, high) in zip(self.ranges.items(), bounds, strict=True):
            self.ranges[name] = min(least, low), max(most, high)
        return outputs[:-count]


def quantize(path: Path, module: nn.Module, ranges: dict[str, Range]) -> None:
    """Quantize the large products in a module's file.

    Args:
        path: float32 file, which is replaced.
        ranges: ranges of the products' inputs, from an `ObservedStep` that ran over recordings.
    """
    import onnx

    model = onnx.load(path)
    put_on_integers(model, large_products(model, module), ranges)
    (description,) = (each for each in model.metadata_props if each.key == KEY)
    description.value = json.dumps(json.loads(description.value) | {"precision": "int8"})
    onnx.save(model, path)
    data_path(path).unlink(missing_ok=True)


def large_products(model: "ModelProto", module: nn.Module) -> list["NodeProto"]:
    """Return the products of linear layers, and the convolution over many channels."""
    # Some position encodings also have matrices: shapes identify linear layers.
    shapes = {tuple(m.weight.shape[::-1]) for m in module.modules() if isinstance(m, nn.Linear)}
    sizes = {each.name: tuple(each.dims) for each in model.graph.initializer}
    products = []
    for node in model.graph.node:
        size = sizes.get(node.input[1]) if len(node.input) > 1 else None
        many = size is not None and size[2:] == (3, 3) and size[1] >= FEWEST_CHANNELS
        if (node.op_type == "MatMul" and size in shapes) or (node.op_type == "Conv" and many):
            products.append(node)
    return products


def put_on_integers(
    model: "ModelProto", products: list["NodeProto"], ranges: dict[str, Range]
) -> None:
    """Quantize these products of a graph, and remove their float weights."""
    from onnx import helper, parser

    weights = {each.name: each for each in model.graph.initializer}
    if any(node.op_type == "Conv" for node in products):
        model.functions.append(parser.parse_function(CONVOLUTION))
    for node in products:
        quantize_product(model, node, ranges[node.input[0]])
    used = {name for node in model.graph.node for name in node.input}
    for name in weights.keys() - used:
        model.graph.initializer.remove(weights[name])
    for domain in ("asrkit", "com.microsoft"):
        model.opset_import.append(helper.make_opsetid(domain, 1))


class Product(NamedTuple):
    """A float product."""

    weight: np.ndarray  # (K, N)
    bias: np.ndarray | None  # (N,)
    output: str  # name of its value with the bias
    axis: int  # of the N columns in the output


def quantize_product(model: "ModelProto", node: "NodeProto", bounds: Range) -> None:
    """Replace a float product, and the addition of its bias, by an integer product."""
    from onnx import helper, numpy_helper

    graph = model.graph
    product = product_of(model, node)
    constants = constants_of(product, bounds)
    names = {each: f"{node.output[0]}_{each}" for each in ("bytes", "wide", *constants)}
    for each, array in constants.items():
        graph.initializer.append(numpy_helper.from_array(array, names[each]))

    inputs = [names[each] for each in ("bytes", "weight", "scale", "weight_scale", "zero")]
    bias = [names["bias"]] if product.bias is not None else []
    output = names["wide"] if "end" in constants else product.output
    if node.op_type == "Conv":
        multiply = helper.make_node("convolution", [*inputs, *bias], [output], domain="asrkit")
    else:
        inputs += ["", *bias] if bias else []
        kind, domain = "MatMulIntegerToFloat", "com.microsoft"
        multiply = helper.make_node(kind, inputs, [output], domain=domain)
    source = [node.input[0], names["scale"], names["zero"]]
    nodes = [helper.make_node("QuantizeLinear", source, [names["bytes"]]), multiply]
    if "end" in constants:
        cut = [names[each] for each in ("wide", "start", "end", "axis")]
        nodes.append(helper.make_node("Slice", cut, [product.output]))
    place = next(i for i, each in enumerate(graph.node) if each.output[0] == node.output[0])
    del graph.node[place]
    for each in reversed(nodes):
        graph.node.insert(place, each)


def product_of(model: "ModelProto", node: "NodeProto") -> Product:
    """Return a float product with the addition of its bias, which is removed from the graph."""
    from onnx import numpy_helper

    graph = model.graph
    arrays = {each.name: each for each in graph.initializer}
    weight = numpy_helper.to_array(arrays[node.input[1]])
    if node.op_type == "Conv":
        matrix = weight.transpose(2, 3, 1, 0).reshape(-1, len(weight))  # (9·S, O)
        return Product(matrix, numpy_helper.to_array(arrays[node.input[2]]), node.output[0], 1)
    users = [each for each in graph.node if node.output[0] in each.input]
    added = users[0].input if len(users) == 1 and users[0].op_type == "Add" else []
    vectors = [name for name in added if name in arrays and len(arrays[name].dims) == 1]
    if not vectors:
        return Product(weight, None, node.output[0], -1)
    graph.node.remove(users[0])
    return Product(weight, numpy_helper.to_array(arrays[vectors[0]]), users[0].output[0], -1)


def constants_of(product: Product, bounds: Range) -> dict[str, np.ndarray]:
    """Return the constants of an integer product whose input has these bounds.

    They have "start", "end" and "axis" if the product has columns that must be cut off.
    """
    count = product.weight.shape[1]
    # Zero columns: with AMX, ONNX Runtime before 1.25 multiplies 32 rows wrongly by the others
    # (https://github.com/microsoft/onnxruntime/pull/27671).
    more = -count % 32 if count % 32 > 16 else 0
    weight = np.pad(product.weight, ((0, 0), (0, more)))
    columns = np.abs(weight).max(axis=0).clip(min=1e-20) / 63  # the step of each column
    step = max(bounds[1] - bounds[0], 1e-10) / 255
    constants = {
        "weight": np.rint(weight / columns).astype(np.int8),
        "scale": np.array(step, np.float32),
        "weight_scale": columns.astype(np.float32),
        "zero": np.array(round(-bounds[0] / step), np.uint8),
    }
    if product.bias is not None:
        constants["bias"] = np.pad(product.bias, (0, more))
    if more:
        cut = {"start": 0, "end": count, "axis": product.axis}
        constants |= {name: np.array([number]) for name, number in cut.items()}
    return constants
