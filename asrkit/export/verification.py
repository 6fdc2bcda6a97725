"""Comparison of an exported file with eager over a whole stream."""

import copy
import math
from typing import Any

import numpy as np
from torch import nn

from asrkit.audio import HOP
from asrkit.backends import Backend
from asrkit.backends.backend import of_step
from asrkit.backends.check import TOLERANCE, compare, largest_of
from asrkit.backends.export_metadata import Exported
from asrkit.backends.pytorch import OnArrays, eager
from asrkit.build import build_frontend
from asrkit.export.modules import SamplesStep, WholeStep, of_samples_step, of_stream
from asrkit.export.onnx import LONGEST
from asrkit.model import Step
from asrkit.model_file import ModelFile

ROUNDINGS = 8.0  # factor on eager's rounding errors; ONNX Runtime's are up to four times as large


def eager_step(file: ModelFile, exported: Exported) -> nn.Module:
    """Return the module that is exported, and that the export must equal."""
    if exported.context.full:
        return WholeStep(file.model).eval()
    if exported.what == "encoder":
        return Step(file.model.encoder, None, exported.context).eval()
    step = Step(file.model.encoder, file.model.head, exported.context).eval()
    if exported.what != "model":
        return step
    return SamplesStep(build_frontend(file.config.model), step).eval()


def backend_of(step: Any, file: ModelFile, exported: Exported) -> Backend:
    """Return an export, or the module that is exported, as a backend of the model."""
    reference = eager(file.model, exported.context)
    if isinstance(step, nn.Module):
        step = OnArrays(step, file.model.encoder.mean)
    if exported.what == "model":
        return of_samples_step(step, reference, build_frontend(file.config.model))
    init_state, run = of_step(step, reference.spec)
    return reference._replace(init_state=init_state, step=run)


def largest_difference(
    file: ModelFile, exported: Exported, step: Any, samples: np.ndarray
) -> float:
    """Return the largest difference from eager over all outputs and states of samples (1, N).

    The stream runs alone with one chunk per step. It also runs in a batch with three chunks per
    step. In full context the recording runs alone and in a batch, and so does its beginning.
    """
    reference = backend_of(eager_step(file, exported), file, exported)
    return largest_between(backend_of(step, file, exported), reference, file, samples)


def tolerance(
    file: ModelFile, exported: Exported, samples: np.ndarray, difference: float = math.inf
) -> float:
    """Return the allowed difference from eager over samples (1, N) that gave `difference`.

    The result is TOLERANCE. For exports from samples it is at least ROUNDINGS times the difference
    between eager in float32 and in float64. In a band with hardly any energy, the logarithm
    consists of rounding errors of the loud bands, which limits the precision in any program.
    """
    if exported.what != "model" or difference <= TOLERANCE:
        return TOLERANCE
    precise = file._replace(model=copy.deepcopy(file.model).double())
    exact = backend_of(eager_step(precise, exported).double(), precise, exported)
    reference = backend_of(eager_step(file, exported), file, exported)
    return max(TOLERANCE, ROUNDINGS * largest_between(reference, exact, file, samples))


def largest_between(
    backend: Backend, reference: Backend, file: ModelFile, samples: np.ndarray
) -> float:
    """Return the largest difference of two backends over samples (1, N), N ≥ 400."""
    spec, frontend = reference.spec, build_frontend(file.config.model)
    pairs = []
    backwards = samples[:, ::-1]
    for rows in (samples, np.concatenate([backwards, samples, backwards])):
        stream = of_stream(frontend, rows)
        if spec.num_mels == HOP:  # from samples
            feats = stream[:, : stream.shape[1] // HOP * HOP].reshape(len(stream), -1, HOP)
        else:
            feats, _ = frontend(stream, stream[:, :0])
        count = max(1, spec.rate.num_frames(feats.shape[1]))
        size = len(rows) * spec.context.chunk_size
        sizes = [size] * math.ceil(count / size)
        if spec.context.full:
            sizes = [min(count, LONGEST), max(1, min(count, LONGEST) // 3)]
        frames, others = compare(backend, reference, feats, sizes)
        pairs += [*frames, *others]
    return largest_of(pairs)
