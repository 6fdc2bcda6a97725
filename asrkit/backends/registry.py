"""The kinds of backends: choose one, and check that it computes what eager computes.

All have one signature (`Backend`), so no other code depends on the kind. A new kind is a function
in its own file and a line in BACKENDS.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asrkit.audio import SAMPLE_RATE, Frontend, features
from asrkit.backends import onnx
from asrkit.backends.backend import Backend
from asrkit.backends.check import TOLERANCE, Pair, compare, compare_parts, largest_of, rounding
from asrkit.backends.pytorch import eager
from asrkit.backends.transducer import TransducerParts
from asrkit.build import build_frontend
from asrkit.context import Context
from asrkit.errors import UserError, reason, shown
from asrkit.model_file import ModelFile
from asrkit.registry import refusal

WHOLE_FRAMES = 20  # encoder frames of the recordings that check backends in full context
MOST_ROUNDING = 0.5  # for int8; correct files have 0.04 to 0.1, with two labels exchanged 0.95

logger = logging.getLogger("asrkit")


class BackendKind(NamedTuple):
    """A kind of backend: its function and its abilities."""

    build: Callable[[ModelFile, Backend], Backend]  # arguments: a model and its eager backend
    on_any_device: bool = False
    exact: bool = True  # whether it must equal eager to TOLERANCE, not just to rounding


BACKENDS = {
    "eager": BackendKind(lambda _, eager: eager, on_any_device=True),
    "onnx": BackendKind(partial(onnx.build, "onnx")),
    "onnx-int8": BackendKind(partial(onnx.build, "onnx-int8"), exact=False),
}


def build_backend(kind: str | Path | None, file: ModelFile, context: Context) -> Backend:
    """Return a backend of this kind, checked to compute what eager computes.

    Args:
        kind: one of BACKENDS, or the path of a file that asrkit export wrote. None for the fastest
            available: an ONNX export beside the model file, else eager.
        file: model, on its device.
        context: C, M and R.

    Raises:
        UserError: for an unknown kind, one that cannot run this, or one with other results.
    """
    reference = eager(file.model, context)
    return fastest(reference, file) if kind is None else build_checked(str(kind), file, reference)


def build_second(kind: str | Path | None, file: ModelFile, context: Context) -> Backend:
    """Return a backend as `build_backend` does, for the second pass, which has no right context.

    A named file is for one context, so an export beside the model is used instead.
    """
    return build_backend(kind if str(kind) in BACKENDS else None, file, context)


def fastest(reference: Backend, file: ModelFile) -> Backend:
    """Return ONNX if an export of this model for this context exists, else eager."""
    if reference.spec.device != "cpu" or onnx.find("onnx", file, reference) is None:
        return reference
    try:
        return build_checked("onnx", file, reference)
    except UserError as error:
        logger.warning("running eagerly: %s", error)
        return reference


def build_checked(name: str, file: ModelFile, reference: Backend) -> Backend:
    """Return a backend that computes what the eager one computes."""
    kind = kind_of(name)
    if reference.spec.device != "cpu" and not kind.on_any_device:
        able = ", ".join(each for each, other in BACKENDS.items() if other.on_any_device)
        raise UserError(f"backend {shown(Path(name))} needs device cpu: choose {able}")
    try:
        backend = kind.build(file, reference)
        if backend is not reference:
            check(backend, file, reference)
    except UserError:
        raise
    except Exception as error:  # a runtime's, about a file that does not fit
        raise UserError(f"backend {shown(Path(name))}: {reason(error)}") from error
    return backend


def kind_of(name: str) -> BackendKind:
    """Return a kind by its name, or by the path of an exported file."""
    if name in BACKENDS:
        return BACKENDS[name]
    if name.endswith(".onnx"):
        return BackendKind(partial(onnx.of_file, Path(name)))
    raise UserError(f"backend {refusal(name, (*BACKENDS, 'an .onnx file'))}")


def check(backend: Backend, file: ModelFile, reference: Backend) -> None:
    """Compare two steps of three rows of noise with eager: one of a chunk, a later one of several.

    In full context, both steps have their own recordings.
    """
    spec, exact = reference.spec, BACKENDS[backend.kind].exact
    chunk = WHOLE_FRAMES if spec.context.full else spec.context.chunk_size
    # At least 33 frames: on some processors, ONNX Runtime's kernel for 32 rows was wrong.
    many = 2 if spec.context.full else max(2, -(-11 // chunk))
    number = spec.rate.factor * (1 + many) * chunk + spec.ahead_frames
    feats = noise(build_frontend(file.config.model), number, np.random.default_rng(1))
    frames, others = compare(backend, reference, feats, (chunk, many * chunk))
    if exact:
        require(f"backend {backend.kind} differs", [*frames, *others])
    if isinstance(backend.transducer, TransducerParts):
        pairs = compare_parts(backend.transducer)
        require(f"predictor and joiner of backend {backend.kind} differ", pairs)
    if not exact and not (worst := rounding(frames)) <= MOST_ROUNDING:
        raise UserError(
            f"backend {backend.kind} differs from eager by {worst:.0%} of a label's standard "
            f"deviation, over {MOST_ROUNDING:.0%}: export it again"
        )


def require(problem: str, pairs: Iterable[Pair]) -> None:
    """Raise UserError for pairs with a difference of more than TOLERANCE."""
    if not (worst := largest_of(pairs)) <= TOLERANCE:
        raise UserError(f"{problem} from eager by {worst:.1e}, over {TOLERANCE:.0e}")


def noise(frontend: Frontend, frames: int, draw: np.random.Generator) -> np.ndarray:
    """Return (3, T, F) features of noise at 0 to -80 dB in each tenth of a second."""
    tenths = frames // 10 + 2
    loudness = 10.0 ** (-4.0 * draw.random((3, tenths, 1)))
    samples = (draw.normal(size=(3, tenths, SAMPLE_RATE // 10)) * loudness).reshape(3, -1)
    samples = samples.clip(-1, 1).astype(np.float32)
    feats, _ = features(frontend, samples, np.full(3, samples.shape[1]))
    return feats[:, -frames:]
