"""Sessions of the graphs that sherpa-onnx runs, in ONNX Runtime."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from asrkit.backends.export_metadata import PARTS, Exported
from asrkit.backends.transducer import part_steps
from asrkit.export import onnx as onnx_export
from asrkit.export.verification import eager_step
from asrkit.model import TransducerHead
from asrkit.model_file import ModelFile


def wired(layout: ModuleType, file: ModelFile, exported: Exported, folder: Path) -> list[Any]:
    """Sessions of the graphs in a layout: `sherpa_nemo` or `sherpa_lstm` of asrkit.export."""
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    paths, head = [folder / "encoder"], file.model.head
    onnx_export.write(eager_step(file, exported), paths[0], exported, file)
    if isinstance(head, TransducerHead):
        for part, step in zip(PARTS, part_steps(head), strict=True):
            paths.append(folder / part)
            onnx_export.write(step, paths[-1], exported._replace(what=part), file)
    models = layout.wired(paths, file, exported)
    for model in models:
        onnx.checker.check_model(model, full_check=True)
    return [onnxruntime.InferenceSession(each.SerializeToString()) for each in models]


def run(session: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    names = [each.name for each in session.get_inputs()]
    found: list[np.ndarray] = session.run(None, dict(zip(names, inputs, strict=True)))
    return found
