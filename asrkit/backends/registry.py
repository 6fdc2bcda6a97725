"""The kinds of backends: choose one, and check that it computes what eager computes.

All have one signature (`Backend`), so no other code depends on the kind. A new kind is a function
in its own file and a line in BACKENDS.
"""

import logging
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from asrkit.backends import onnx
from asrkit.backends.backend import Backend
from asrkit.context import Context
from asrkit.errors import UserError, reason, shown
from asrkit.extras import missing
from asrkit.model_contents import RunnableModel
from asrkit.registry import refusal

logger = logging.getLogger("asrkit")

# Arguments: model, context, CPU threads (None: the runtime's own number).
Build = Callable[[RunnableModel, Context, int | None], Backend]


def build_eager(model: RunnableModel, context: Context, threads: int | None) -> Backend:
    """Return the network in PyTorch, whose threads are set for the whole process."""
    name = model.rate.name_with_left(context)
    exported = onnx.find("onnx", model, context) is not None
    if model.path is not None and not model.path.is_file():
        other = "" if exported else f", or its export for {name}"
        raise UserError(f"{shown(model.path)} is missing: put it there{other}")
    if find_spec("torch") is None and exported:  # eager was named, or alone can align
        raise UserError(f"backend eager: {missing(['torch'])}")
    if find_spec("torch") is None:
        there = ", ".join(onnx.exports_of(model)) or "none"
        raise UserError(
            f"{shown(model.path)} has no export for {name} beside it (there: {there}), and "
            f"{missing(['torch'])}; or where torch is: asrkit export"
        )
    from asrkit.backends.pytorch import eager, set_threads

    set_threads(threads)
    return eager(model.load().model, context)


BACKENDS: dict[str, Build] = {
    "eager": build_eager,
    "onnx": partial(onnx.build, "onnx"),
    "onnx-int8": partial(onnx.build, "onnx-int8"),
}


def build_backend(
    kind: str | Path | None,
    model: RunnableModel,
    context: Context,
    device: str = "cpu",
    threads: int | None = 1,
) -> Backend:
    """Return a backend of this kind, checked to compute what eager computes.

    Args:
        kind: one of BACKENDS, or the path of a file that asrkit export wrote. None for the fastest
            available: an ONNX export beside the model file, else eager.
        model: model, whose network will be on the device.
        context: C, M and R.
        threads: CPU threads; None: the runtime's own number.

    Raises:
        UserError: for an unknown kind, one that cannot run this, or one with other results.
    """
    if kind is not None:
        return build_kind(str(kind), model, context, device, threads)
    if device == "cpu" and onnx.find("onnx", model, context) is not None:
        try:
            return build_kind("onnx", model, context, device, threads)
        except UserError as error:
            if find_spec("torch") is None:
                raise
            logger.warning("running eagerly: %s", error)
    return build_kind("eager", model, context, device, threads)


def build_second(
    kind: str | Path | None,
    first: Backend,
    model: RunnableModel,
    context: Context,
    device: str,
    threads: int | None,
) -> Backend:
    """Return a backend as `build_backend` does, for the second pass, which has no right context.

    A named file is for one context, so an export beside the model is used instead, in int8 if the
    first pass is and there is one.
    """
    if str(kind) not in BACKENDS:
        is_int8 = first.kind == "onnx-int8" and onnx.find(first.kind, model, context) is not None
        kind = first.kind if is_int8 else None
    return build_backend(kind, model, context, device, threads)


def build_kind(
    name: str, model: RunnableModel, context: Context, device: str, threads: int | None
) -> Backend:
    """Return the backend of a kind's name, or of an exported file's path."""
    if name in BACKENDS:
        build = BACKENDS[name]
    elif name.endswith(".onnx"):
        build = partial(onnx.of_file, Path(name))
    else:
        raise UserError(f"backend {refusal(name, (*BACKENDS, 'an .onnx file'))}")
    if device != "cpu" and name.removesuffix("-int8").endswith("onnx"):
        raise UserError(f"backend {shown(Path(name))} needs device cpu: choose eager")
    try:
        return build(model, context, threads)
    except UserError:
        raise
    except Exception as error:  # a runtime's, about a file that does not fit
        raise UserError(f"backend {shown(Path(name))}: {reason(error)}") from error
