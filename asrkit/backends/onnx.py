"""Files that `asrkit export` wrote for ONNX Runtime: as modules, and as a backend."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from asrkit.backends.backend import Backend, of_step
from asrkit.backends.backend import State as NetworkState
from asrkit.backends.export_metadata import (
    KEY,
    PARTS,
    ExportDescription,
    Exported,
    data_path,
    described,
    export_path,
    part_path,
    read_by,
)
from asrkit.backends.transducer import State, TransducerParts
from asrkit.errors import UserError, reason, shown
from asrkit.extras import need
from asrkit.model import EncoderState, TransducerHead
from asrkit.model_file import ModelFile, fingerprint

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

STATE = [f"state_{name}" for name in EncoderState._fields]
KINDS = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
PRECISIONS = {"onnx": "float32", "onnx-int8": "int8"}  # precision of the files, by kind of backend
FOLDER = "session.model_external_initializers_file_folder_path"  # key of ONNX Runtime's options
LOCATION = b"\n\x08location"  # key of a tensor's file, as protobuf writes it
MOST_NUMBERS = 1 << 28  # numbers in each part of a stream's state


class OnnxGraph:
    """The graph of a file."""

    def __init__(self, session: "InferenceSession", description: ExportDescription) -> None:
        self.session, self.description = session, description
        self.threads, self.process = session.get_session_options().intra_op_num_threads, os.getpid()
        self.inputs = [each.name for each in session.get_inputs()]

    def compute(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Return the outputs of the graph for its inputs, by order."""
        return self.run(dict(zip(self.inputs, arrays, strict=True)))

    def run(self, arrays: "dict[str, np.ndarray]") -> "list[np.ndarray]":
        """Return the outputs of the graph by order; inputs are by name.

        Raises:
            UserError: in a forked process, which lacks the session's threads; ONNX Runtime would
                wait for them forever.
        """
        if self.threads > 1 and os.getpid() != self.process:
            raise UserError(
                f"the {self.threads} threads of ONNX Runtime do not survive a fork: "
                "call asrkit.load in this process, or with threads=1 before the fork"
            )
        return self.session.run(None, arrays)


Graph = TypeVar("Graph", bound=OnnxGraph)


class OnnxStep(OnnxGraph):
    """An exported file, called as the module that it was exported from."""

    def __init__(self, session: "InferenceSession", description: ExportDescription) -> None:
        super().__init__(session, description)
        if description.exported.what in PARTS:
            raise ValueError(f"it is the {description.exported.what} of an export, not its encoder")
        state = [] if description.exported.context.full else session.get_inputs()[-len(STATE) :]
        self.state_shapes = [each.shape[1:] for each in state]
        self.state_kinds = [KINDS[each.type] for each in state]
        for name, shape in zip(STATE, self.state_shapes, strict=bool(state)):
            if not all(isinstance(size, int) and size >= 0 for size in shape):
                raise ValueError(f"{name} has no fixed shape")
            if math.prod(shape) > MOST_NUMBERS:
                raise ValueError(f"{name} would hold more than {MOST_NUMBERS} numbers per stream")

    def init_state(self, batch_size: int) -> NetworkState:
        kinds = zip(self.state_shapes, self.state_kinds, strict=True)
        return tuple(np.zeros((batch_size, *shape), kind) for shape, kind in kinds)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run the module: its inputs, with whole chunks of audio -> its outputs."""
        outputs = self.compute(*([*inputs[:-1], *inputs[-1]] if self.state_shapes else inputs))
        if not self.state_shapes:
            return tuple(outputs)
        return *outputs[: -len(STATE)], tuple(outputs[-len(STATE) :])


def build(kind: str, file: ModelFile, reference: Backend) -> Backend:
    """Make the backend from the export beside the model file."""
    path = find(kind, file, reference)
    if path is None:
        spec = reference.spec
        full = spec.context.full
        what, option = (
            ("full context", " --chunk-ms full") if full else (f"chunks of {spec.context_name}", "")
        )
        raise UserError(
            f"backend {kind}: no export of this model for {what} lies beside it; "
            f"asrkit export --format {kind}{option} writes one"
        )
    return of_file(path, file, reference, PRECISIONS[kind])


def find(kind: str, file: ModelFile, reference: Backend) -> Path | None:
    """Return the export beside the model file for this context, if there is one."""
    if file.path is None:
        return None
    path = export_path(file.path, wanted_of(reference), kind)
    return path if path.is_file() else None


def wanted_of(reference: Backend) -> Exported:
    """Return the export that this backend needs."""
    return Exported(read_by(reference.head), reference.spec.context, reference.spec.rate.frame_ms)


def of_file(
    path: Path,
    file: ModelFile,
    reference: Backend,
    precision: str | None = None,
    parts: Sequence[Path] | None = None,
) -> Backend:
    """Make the backend from an exported file.

    Args:
        file: model that the file must have been exported from.
        reference: eager backend in the context that the file must have.
        precision: precision that the file must have; None for any.
        parts: files of a transducer's predictor and joiner; if None, those beside the file.
    """
    step, exported = read(path)
    wanted = wanted_of(reference)
    if reference.spec.dtype != "float32":
        raise UserError(f"{shown(path)} is float32, this network is not: use backend eager")
    if exported != wanted:
        raise UserError(f"{shown(path)} is for {exported}, not for {wanted}")
    stated = step.description.precision
    if stated not in PRECISIONS.values() or precision not in (None, stated):
        wanted_precision = precision or " or ".join(PRECISIONS.values())
        raise UserError(
            f"{shown(path)} has precision {shown(stated)}, not {wanted_precision}: export it again"
        )
    check_weights(path, step, file)
    state = [] if exported.context.full else reference.init_state(1)
    if step.state_shapes != [list(part.shape[1:]) for part in state]:
        raise UserError(f"{shown(path)} has another state than this model: export it again")
    paths = [part_path(path, part) for part in PARTS] if parts is None else parts
    kind = next(kind for kind, name in PRECISIONS.items() if name == stated)
    return of_step(step, reference)._replace(kind=kind, transducer=read_parts(paths, file))


def check_weights(path: Path, graph: OnnxGraph, file: ModelFile) -> None:
    """Raise UserError if a file was exported from another model."""
    if graph.description.weights != fingerprint(file.model.state_dict()):
        raise UserError(f"{shown(path)} was exported from another model: export this model")


def read_parts(paths: Sequence[Path], file: ModelFile) -> TransducerParts | None:
    """Return predictor and joiner of a transducer in two files; None for CTC."""
    head = file.model.head
    if not isinstance(head, TransducerHead):
        return None
    graphs = []
    for part, path in zip(PARTS, paths, strict=True):
        if not path.is_file():
            raise UserError(f"the export lacks its {part}, {shown(path)}: export it again")
        graph = read_graph(path, OnnxGraph)
        if (what := graph.description.exported.what) != part:
            raise UserError(f"{shown(path)} must be the {part} of an export, got {what}")
        check_weights(path, graph, file)
        graphs.append(graph)
    predictor, joiner = graphs

    def predict(tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        output, *after = predictor.compute(tokens, *state)
        return output, tuple(after)

    return TransducerParts(
        head, predict, lambda frames, predicted: joiner.compute(frames, predicted)[0]
    )


def read(path: str | Path) -> tuple[OnnxStep, Exported]:
    """Return the step and the description in a file of `write` or `int8.quantize`. The session has
    as many threads as torch.
    """
    step = read_graph(Path(path), OnnxStep)
    return step, step.description.exported


def read_graph(path: Path, kind: type[Graph]) -> Graph:
    """Return the graph in a file of asrkit, of this class."""
    need("onnxruntime")
    import onnxruntime

    try:
        return kind(*open_session(source_of(path)))
    except UserError:
        raise
    except Exception as error:  # ONNX Runtime's errors have no other common class
        if type(error).__name__ == "NotImplemented":
            raise UserError(
                f"onnxruntime {onnxruntime.__version__} cannot run this export, a later one may: "
                f"pip install --upgrade onnxruntime ({reason(error)})"
            ) from None
        raise UserError(
            f"{shown(path)} is not a file that asrkit export wrote: {reason(error)}"
        ) from None


def source_of(path: Path) -> bytes | str:
    """Return the contents of a graph's file, or its path if its weights are in `data_path`.

    Raises:
        UserError: if the weights are missing.
        ValueError: for weights in any other file.
    """
    content = path.read_bytes()
    if LOCATION not in content:
        return content
    need("onnx")
    import onnx

    model, data = onnx.load_model_from_string(content), data_path(path)
    names = [
        entry.value
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    ]
    # Tensors elsewhere in the model can have locations too.
    if {*names} != {data.name} or model.SerializeToString().count(LOCATION) != len(names):
        raise ValueError(f"its weights must be in {data.name}, beside it")
    if not data.is_file():
        raise UserError(
            f"{shown(path)} has its weights in {shown(data)}, which is missing: put it there, or "
            "export again"
        )
    return str(path)


def open_session(source: bytes | str) -> "tuple[InferenceSession, ExportDescription]":
    """Return a session for a file's contents or path, and the file's description.

    By default, ONNX Runtime opens files that such contents name in the current folder; it gets the
    path of a device instead, which contains nothing.
    """
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if isinstance(source, bytes):
        options.add_session_config_entry(FOLDER, os.devnull)
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return session, described(session.get_modelmeta().custom_metadata_map[KEY])
