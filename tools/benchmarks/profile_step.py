"""Profile the time of a streaming step, and how far its matrix products are from plain ones.

The step is that of the reference encoder for a chunk of 640 ms on ONNX Runtime, in float32 and
int8. The tool prints the time by kind of operation, and the GFLOP/s of each shape of product in the
step. Beside it are products of this shape alone, with as many matrices as the step has, so that the
caches are as cold.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import torch
from bench_stream import Contenders
from benchmarks import CHUNK_SIZE, Row, environment, parser, random_feats, reference_layers, report

from asrkit.backends.onnx import OnnxStep, read

STEPS, WARM_UP, SHOWN = 60, 10, 8
PRODUCTS = ("MatMul", "FusedMatMul", "Gemm", "MatMulIntegerToFloat")


class Kernel(NamedTuple):
    """The time that one operation took in one step."""

    operation: str
    shapes: tuple[tuple[int, ...], ...]  # of its inputs, but for weights that were packed
    output: tuple[int, ...]
    seconds: float

    @property
    def product(self) -> tuple[int, int, int] | None:
        """Rows, inner and columns of a product by a matrix of weights."""
        if self.operation not in PRODUCTS or any(len(shape) > 1 for shape in self.shapes[1:]):
            return None
        inner = self.shapes[0][-1]
        return int(np.prod(self.shapes[0])) // inner, inner, self.output[-1]


def kernels(path: Path, threads: int) -> list[list[Kernel]]:
    """The operations of each of STEPS steps."""
    step = with_profile(path, threads)
    state = step.init_state(1)
    feats = random_feats(CHUNK_SIZE * 0.04)
    lengths = torch.tensor([feats.size(1)])
    for _ in range(WARM_UP + STEPS):
        _, _, state = step(feats, lengths, state)
    trace = Path(step.session.end_profiling())
    events = json.loads(trace.read_text())
    trace.unlink()
    found = [kernel(event) for event in events if event["name"].endswith("_kernel_time")]
    size = len(found) // (WARM_UP + STEPS)
    return [found[i : i + size] for i in range(WARM_UP * size, len(found), size)]


def with_profile(path: Path, threads: int) -> OnnxStep:
    """The step, on a session that writes down what it does."""
    torch.set_num_threads(threads)
    plain, _ = read(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_profiling, options.profile_file_prefix = True, str(path.with_suffix(""))
    return OnnxStep(onnxruntime.InferenceSession(str(path), options), plain.description)


def kernel(event: dict[str, Any]) -> Kernel:
    inputs, outputs = (
        [tuple(shape) for each in event["args"][f"{side}_type_shape"] for shape in each.values()]
        for side in ("input", "output")
    )
    return Kernel(event["args"]["op_name"], tuple(inputs), outputs[0], event["dur"] / 1e6)


def plain_rate(rows: int, inner: int, columns: int, count: int, threads: int, int8: bool) -> float:
    """GFLOP/s of `count` products of this shape by matrices of their own, nothing between them."""
    draw = np.random.default_rng(0)
    node, domain = ("MatMulIntegerToFloat", "com.microsoft") if int8 else ("MatMul", "")
    constants = {"scale": np.float32(0.01), "scales": np.full(columns, 0.01, np.float32)}
    constants["zero"] = np.uint8(128)
    x: np.ndarray = draw.standard_normal((rows, inner), dtype=np.float32)
    if int8:
        x = draw.integers(0, 255, (rows, inner), dtype=np.uint8)
    nodes = []
    for i in range(count):
        constants[f"w{i}"] = (
            draw.integers(-60, 60, (inner, columns), dtype=np.int8)
            if int8
            else draw.standard_normal((inner, columns), dtype=np.float32)
        )
        names = ["x", f"w{i}", *(["scale", "scales", "zero"] if int8 else [])]
        nodes.append(onnx.helper.make_node(node, names, [f"y{i}"], domain=domain))
    weights = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    outputs = [
        onnx.helper.make_tensor_value_info(f"y{i}", onnx.TensorProto.FLOAT, [rows, columns])
        for i in range(count)
    ]
    kind = onnx.TensorProto.UINT8 if int8 else onnx.TensorProto.FLOAT
    given = onnx.helper.make_tensor_value_info("x", kind, [rows, inner])
    graph = onnx.helper.make_graph(nodes, "plain", [given], outputs, weights)
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    seconds = []
    for _ in range(WARM_UP + STEPS):
        started = time.perf_counter()
        session.run(None, {"x": x})
        seconds.append(time.perf_counter() - started)
    return 2e-9 * rows * inner * columns * count / statistics.median(seconds[WARM_UP:])


def rows_of(name: str, steps: list[list[Kernel]], threads: int) -> list[Row]:
    """Products by shape, then the other operations that take longest, then the rest."""
    total = statistics.median(sum(kernel.seconds for kernel in step) for step in steps)
    groups: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(steps))
    counts: dict[str, int] = defaultdict(int)
    shapes: dict[str, tuple[int, int, int]] = {}
    for i, step in enumerate(steps):
        for each in step:
            label = each.operation
            if each.product:
                label = "product " + " × ".join(map(str, each.product))
                shapes[label] = each.product
            groups[label][i] += each.seconds
            counts[label] += i == 0
    medians = {label: statistics.median(seconds) for label, seconds in groups.items()}
    order = sorted(medians, key=lambda label: (label not in shapes, -medians[label]))
    table: list[Row] = []
    for label in order[: len(shapes) + SHOWN]:
        row: Row = {"step": name, "threads": threads, "operation": label, "times": counts[label]}
        row |= {"ms": 1000 * medians[label], "share, %": 100 * medians[label] / total}
        if label in shapes:
            shape, count = shapes[label], counts[label]
            row["GFLOP/s"] = 2e-9 * float(np.prod(shape)) * count / medians[label]
            row["alone, GFLOP/s"] = plain_rate(*shape, count, threads, "int8" in name)
        table.append(row)
    rest = sum(medians[label] for label in order[len(shapes) + SHOWN :])
    products = sum(medians[label] for label in shapes)
    for label, seconds in (("the rest", rest), ("all products", products), ("everything", total)):
        table.append(
            {"step": name, "threads": threads, "operation": label,
             "ms": 1000 * seconds, "share, %": 100 * seconds / total}
        )  # fmt: skip
    return table


def measure(options: argparse.Namespace) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        built = Contenders(reference_layers(options), Path(folder))
        return [
            row
            for threads in options.threads
            for name, path in (("float32", built.exported), ("int8", built.quantized))
            for row in rows_of(name, kernels(path, threads), threads)
        ]


def main() -> None:
    arguments = parser(
        "Where the time of a streaming step goes.",
        "python tools/benchmarks/profile_step.py --threads 1",
    )
    options = arguments.parse_args()
    facts = environment(options)
    report("The streaming step, by operation", facts, measure(options), options.json)


if __name__ == "__main__":
    main()
