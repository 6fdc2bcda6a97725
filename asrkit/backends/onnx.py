"""Files that `asrkit export` wrote for ONNX Runtime: as modules, and as a backend."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asrkit.backends.backend import Backend, Spec, of_step
from asrkit.backends.backend import State as NetworkState
from asrkit.backends.check import Probe, check, probe
from asrkit.backends.export_metadata import (
    KEY,
    PARTS,
    ExportDescription,
    Exported,
    data_path,
    described,
    encoded,
    export_path,
    part_path,
)
from asrkit.backends.threads import usual_threads
from asrkit.backends.transducer import State, TransducerParts
from asrkit.build import build_frontend
from asrkit.context import Context
from asrkit.errors import UserError, reason, shown
from asrkit.extras import need
from asrkit.model_contents import RunnableModel
from asrkit.model_header import RunningHeader, checked_header

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

STATE = "state_"  # beginning of the names of a state's parts
KINDS = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
PRECISIONS = {"onnx": "float32", "onnx-int8": "int8"}  # precision of the files, by kind of backend
FOLDER = "session.model_external_initializers_file_folder_path"  # key of ONNX Runtime's options
LOCATION = b"\n\x08location"  # key of a tensor's file, as protobuf writes it
MOST_NUMBERS = 1 << 28  # numbers in each part of a stream's state


class OnnxGraph:
    """The graph of a file. An encoder's is called as the module that it was exported from."""

    def __init__(self, session: "InferenceSession", description: ExportDescription) -> None:
        self.session, self.description = session, description
        self.threads, self.process = session.get_session_options().intra_op_num_threads, os.getpid()
        self.inputs = [each.name for each in session.get_inputs()]
        state = [each for each in session.get_inputs() if each.name.startswith(STATE)]
        self.state_shapes = [each.shape[1:] for each in state]
        self.state_kinds = [KINDS[each.type] for each in state]
        for each, shape in zip(state, self.state_shapes, strict=True):
            if not all(isinstance(size, int) and size >= 0 for size in shape):
                raise ValueError(f"{each.name} has no fixed shape")
            if math.prod(shape) > MOST_NUMBERS:
                raise ValueError(
                    f"{each.name} would hold more than {MOST_NUMBERS} numbers per stream"
                )

    def init_state(self, batch_size: int) -> NetworkState:
        kinds = zip(self.state_shapes, self.state_kinds, strict=True)
        return tuple(np.zeros((batch_size, *shape), kind) for shape, kind in kinds)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run an encoder: the module's inputs, with whole chunks of audio -> its outputs."""
        outputs = self.compute(*([*inputs[:-1], *inputs[-1]] if self.state_shapes else inputs))
        first = len(outputs) - len(self.state_shapes)
        return *outputs[:first], *([tuple(outputs[first:])] if self.state_shapes else [])

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


def build(kind: str, model: RunnableModel, context: Context, threads: int | None) -> Backend:
    """Make the backend from the export beside the model file."""
    path = find(kind, model, context)
    if path is None:
        name = model.rate.name_with_left(context)
        what = "full context" if context.full else f"chunks of {name}"
        raise UserError(
            f"backend {kind}: no export of this model for {what} lies beside it; "
            f"asrkit export --format {kind}{model.rate.options(context, model.live)} writes one"
        )
    return of_file(path, model, context, threads, PRECISIONS[kind])


def find(kind: str, model: RunnableModel, context: Context) -> Path | None:
    """Return the export beside the model file for this context, if there is one."""
    if model.path is None:
        return None
    path = export_path(model.path, wanted_of(model, context), kind)
    return path if path.is_file() else None


def exports_of(model: RunnableModel) -> list[str]:
    """Return the contexts of the float32 exports beside a model file, as their names have them."""
    if model.path is None:
        return []
    names = (path.stem for path in sorted(model.path.parent.glob(f"{model.path.stem}.*.onnx")))
    contexts = [name.removeprefix(f"{model.path.stem}.") for name in names]
    return [each for each in contexts if "." not in each]


def wanted_of(model: RunnableModel, context: Context) -> Exported:
    """Return the export that a model needs in a context."""
    return Exported(model.config.model.head.kind, context, model.rate.frame_ms)


def of_file(
    path: Path,
    model: RunnableModel,
    context: Context,
    threads: int | None,
    precision: str | None = None,
    parts: Sequence[Path] | None = None,
) -> Backend:
    """Make the backend from an exported file, and check the numbers that it computes.

    Args:
        model: model that the file must have been exported from.
        context: context that the file must have.
        threads: CPU threads; None: as many as there are cores.
        precision: precision that the file must have; None for any.
        parts: files of a transducer's predictor and joiner; if None, those beside the file.
    """
    step, exported = read(path, threads)
    description, wanted = step.description, wanted_of(model, context)
    if exported != wanted:
        raise UserError(f"{shown(path)} is for {exported}, not for {wanted}")
    stated = description.precision
    if stated not in PRECISIONS.values() or precision not in (None, stated):
        wanted_precision = precision or " or ".join(PRECISIONS.values())
        raise UserError(
            f"{shown(path)} has precision {shown(stated)}, not {wanted_precision}: export it again"
        )
    check_model(path, description, model)
    kind = next(kind for kind, name in PRECISIONS.items() if name == stated)
    spec = Spec(
        model.config.model.num_mels, model.rate, model.tokenizer.vocab_size, "cpu", "float32",
        context,
    )  # fmt: skip
    paths = [part_path(path, part) for part in PARTS] if parts is None else parts
    transducer = read_parts(paths, model, threads)
    labels = step.session.get_outputs()[0].shape[-1]
    if transducer is None and labels != spec.vocab_size:  # the probe does not read the tokenizer
        raise UserError(f"{shown(path)} has {labels} labels, its tokenizer {spec.vocab_size}")
    backend = Backend(kind, spec, *of_step(step, spec), lambda: description.weights, transducer)
    check(backend, expected_of(description, model, context), build_frontend(model.config.model))
    return backend


def check_model(path: Path, description: ExportDescription, model: RunnableModel) -> None:
    """Raise UserError if a file was exported from another model, or the model file is damaged.

    Files of earlier versions state the weights, but not the checksum of their model file.
    """
    if None in (description.model, model.checksum):
        file = model.load()
        from asrkit.model_tensors import fingerprint  # needs torch, as `load` does

        is_same = description.weights == fingerprint(file.model.state_dict())
    else:  # the model file states its checksum, which is not computed without torch
        config = checked_header(RunningHeader, shown(path), description.values).config
        tokenizer = encoded(model.tokenizer)
        stated = description.model, config, description.values.get("tokenizer", tokenizer)
        is_same = stated == (model.checksum, model.config, tokenizer)
    if not is_same:
        raise UserError(f"{shown(path)} was exported from another model: export this model")


def expected_of(description: ExportDescription, model: RunnableModel, context: Context) -> Probe:
    """Return the numbers that an export must compute; for those of earlier versions with torch."""
    if (text := description.values.get("probe")) is not None:
        return Probe.from_text(text)
    file = model.load()
    from asrkit.backends.pytorch import eager

    return probe(eager(file.model, context), build_frontend(model.config.model))


def read_parts(
    paths: Sequence[Path], model: RunnableModel, threads: int | None
) -> TransducerParts | None:
    """Return predictor and joiner of a transducer in two files; None for CTC."""
    head = model.config.model.head
    if head.kind != "transducer":
        return None
    graphs = []
    for part, path in zip(PARTS, paths, strict=True):
        if not path.is_file():
            raise UserError(f"the export lacks its {part}, {shown(path)}: export it again")
        graph = read_graph(path, threads)
        if (what := graph.description.exported.what) != part:
            raise UserError(f"{shown(path)} must be the {part} of an export, got {what}")
        check_model(path, graph.description, model)
        graphs.append(graph)
    predictor, joiner = graphs

    def predict(tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        output, *after = predictor.compute(tokens, *state)
        return output, tuple(after)

    return TransducerParts(
        predictor.init_state, predict,
        lambda frames, predicted: joiner.compute(frames, predicted)[0],
        model.tokenizer.vocab_size, head.max_symbols,
    )  # fmt: skip


def read(path: str | Path, threads: int | None = 1) -> tuple[OnnxGraph, Exported]:
    """Return the encoder in a file of `asrkit export`, and what the file is.

    Args:
        threads: CPU threads; None: as many as there are cores.
    """
    step = read_graph(Path(path), threads)
    exported = step.description.exported
    if exported.what in PARTS:
        raise UserError(
            f"{shown(Path(path))} does not run alone: it is the {exported.what} of an export, not "
            "its encoder"
        )
    return step, exported


def read_graph(path: Path, threads: int | None) -> OnnxGraph:
    """Return the graph in a file of asrkit."""
    try:
        return OnnxGraph(*open_session(source_of(path), threads))
    except UserError:
        raise
    except Exception as error:  # ONNX Runtime's errors have no other common class
        if type(error).__name__ == "NotImplemented":
            raise UserError(
                f"onnxruntime {runtime().__version__} cannot run this export, a later one may: "
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


def runtime() -> Any:
    """Return the package onnxruntime, which sends no telemetry.

    From 1.29 on it would send some on Linux and macOS, if this variable is not set at its import.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    return onnxruntime


def open_session(
    source: bytes | str, threads: int | None = 1
) -> "tuple[InferenceSession, ExportDescription]":
    """Return a session for a file's contents or path, and the file's description.

    By default, ONNX Runtime opens files that such contents name in the current folder; it gets the
    path of a device instead, which contains nothing.
    """
    onnxruntime = runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or usual_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # its errors are raised as well
    if isinstance(source, bytes):
        options.add_session_config_entry(FOLDER, os.devnull)
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return session, described(session.get_modelmeta().custom_metadata_map[KEY])
