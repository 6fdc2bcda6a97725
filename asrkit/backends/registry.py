"""What runs a model at one chunk size and left context: PyTorch, or an exported form of the model.

All of them have one signature, so that a recogniser does not know which one it runs on:

    state = backend.init_state(batch_size)
    log_probs, lengths, state = backend.step(feats, lengths, state)
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.backends import onnx, torchscript
from asrkit.backends.compare import TOLERANCE, aged, difference
from asrkit.backends.description import Exported
from asrkit.errors import UserError, reason, shown
from asrkit.kinds import refusal
from asrkit.model import (
    FRAME_MS,
    FULL_CONTEXT,
    ConformerCTC,
    CTCOutput,
    CTCStep,
    EncoderState,
    FullContextStep,
)
from asrkit.model_file import ModelFile, fingerprint

Step = Callable[[Tensor, Tensor, EncoderState], CTCOutput]
BACKENDS = ("eager", "compiled", "torchscript", "onnx", "onnx-int8")
EXACT = BACKENDS[:-1]  # those that have to equal eager
PRECISIONS = {"onnx": "float32", "onnx-int8": "int8"}  # of the exported files
MOST_ROUNDING = 0.5  # of int8; honest files have 0.1, two labels exchanged as a rule 0.8

logger = logging.getLogger("asrkit")


class Backend(NamedTuple):
    """A network at one chunk size and left context."""

    kind: str
    chunk_size: int  # C, or FULL_CONTEXT
    left_context: int  # M
    init_state: Callable[[int], EncoderState]
    step: Step  # (B, T, F), (B,), state -> CTCOutput; all steps of a stream but its last: T = n·4·C


def eager(model: ConformerCTC, chunk_size: int, left_context: int) -> Backend:
    """The network, in eval mode, as it is: on any device and in any precision."""
    if chunk_size == FULL_CONTEXT:
        return of_module("eager", FullContextStep(model), chunk_size, 0)
    step = CTCStep(model, chunk_size, left_context)
    return of_module("eager", step, chunk_size, left_context)


def build_backend(
    kind: str | Path | None, file: ModelFile, chunk_size: int, left_context: int
) -> Backend:
    """The backend of this kind, after a look at whether it computes what eager does.

    Args:
        kind: one of BACKENDS, or the path of a file that asrkit export wrote; None for the
            fastest at hand: an export to ONNX that lies beside the model file, else eager.
        file: the model, on its device.
        chunk_size: C, or FULL_CONTEXT, which eager alone can do.
        left_context: M.

    Raises:
        UserError: for a kind that is not one, cannot do this, or computes something else.
    """
    plain = eager(file.model, chunk_size, left_context)
    if kind is None:
        return fastest(plain, file)
    return plain if kind == "eager" else checked(str(kind), file, plain)


def checked(kind: str, file: ModelFile, plain: Backend) -> Backend:
    """A backend that computes what the eager one does.

    Raises:
        UserError: for a kind that is not one, cannot do this, or computes something else.
    """
    if plain.init_state(1).feats.device.type != "cpu" and kind != "compiled":
        raise UserError(
            f"backend {shown(Path(kind))} runs on the CPU alone; eager and compiled on others too"
        )
    if plain.chunk_size == FULL_CONTEXT:
        raise UserError(f"backend {shown(Path(kind))} has chunks; in full context there is eager")
    try:
        backend = exported_backend(kind, file, plain)
        check(backend, plain)
    except UserError:
        raise
    except Exception as error:  # of a compiler, or of a runtime about a file that does not fit
        raise UserError(f"backend {shown(Path(kind))}: {reason(error)}") from error
    return backend


def fastest(plain: Backend, file: ModelFile) -> Backend:
    """ONNX where somebody exported this model for this context, else eager."""
    on_cpu = plain.init_state(1).feats.device.type == "cpu"
    if not on_cpu or plain.chunk_size == FULL_CONTEXT or find_export("onnx", file, plain) is None:
        return plain
    try:
        return checked("onnx", file, plain)
    except UserError as error:
        logger.warning("running eagerly: %s", error)
        return plain


def exported_backend(kind: str, file: ModelFile, plain: Backend) -> Backend:
    """Not yet compared with eager."""
    if kind == "compiled":
        return plain._replace(kind=kind, step=torch.compile(plain.step, dynamic=True))
    if kind == "torchscript":
        module = CTCStep(file.model, plain.chunk_size, plain.left_context).eval()
        frozen = torch.jit.freeze(torchscript.script(module), preserved_attrs=["init_state"])
        return of_module(kind, frozen, plain.chunk_size, plain.left_context)
    if kind in ("onnx", "onnx-int8"):
        path = find_export(kind, file, plain)
        if path is None:
            raise UserError(
                f"backend {kind}: no export of this model for chunks of "
                f"{plain.chunk_size * FRAME_MS} ms lies beside it; asrkit export --format {kind} "
                "writes one"
            )
        return onnx_backend(path, file, plain, PRECISIONS[kind])
    if kind.endswith(".onnx"):
        return onnx_backend(Path(kind), file, plain)
    raise UserError(f"backend {refusal(kind, (*BACKENDS, 'an .onnx file'))}")


def onnx_backend(
    path: Path, file: ModelFile, plain: Backend, precision: str | None = None
) -> Backend:
    """Of an exported file.

    Args:
        path: of the file.
        file: the model that it has to be of.
        plain: eager, for the context that it has to be for.
        precision: that it has to be of; None for any.

    Raises:
        UserError: if it is of another model or precision, or for another context.
    """
    step, exported = onnx.read(path)
    wanted = Exported("ctc", plain.chunk_size, plain.left_context)
    if plain.init_state(1).feats.dtype != torch.float32:
        raise UserError(f"{shown(path)} is of float32; this network is not")
    if exported != wanted:
        raise UserError(f"{shown(path)} is for {exported}, not for {wanted}")
    found = step.description.precision
    if found not in PRECISIONS.values() or precision not in (None, found):
        wanted_precision = precision or " or ".join(PRECISIONS.values())
        raise UserError(
            f"{shown(path)} is of {shown(found)}, not of {wanted_precision}: export it anew"
        )
    if step.description.weights != fingerprint(file.model.state_dict()):
        raise UserError(f"{shown(path)} was exported from another model")
    if step.state_shapes != [list(part.shape[1:]) for part in plain.init_state(1)]:
        raise UserError(f"{shown(path)} keeps another state than this model: export it anew")
    return of_onnx(step, plain)


def of_onnx(step: onnx.OnnxStep, plain: Backend) -> Backend:
    """Of a step for the same context as `plain`, which pads to whole chunks itself."""
    (kind,) = (each for each, name in PRECISIONS.items() if name == step.description.precision)

    def run(feats: Tensor, lengths: Tensor, state: EncoderState) -> CTCOutput:
        block, frames = 4 * plain.chunk_size, (feats.size(1) + 3) // 4
        missing = max(block, -(-feats.size(1) // block) * block) - feats.size(1)
        log_probs, lengths, state = step(functional.pad(feats, (0, 0, 0, missing)), lengths, state)
        return CTCOutput(log_probs[:, :frames], lengths, state)

    return Backend(kind, plain.chunk_size, plain.left_context, step.init_state, run)


def find_export(kind: str, file: ModelFile, plain: Backend) -> Path | None:
    """The export that lies beside the model file."""
    if file.path is None:
        return None
    path = export_path(file.path, Exported("ctc", plain.chunk_size, plain.left_context), kind)
    return path if path.is_file() else None


def export_path(model: Path, exported: Exported, kind: str) -> Path:
    """exp/model.safetensors -> exp/model.640-2560ms.onnx"""
    what = "" if exported.what == "ctc" else f".{exported.what}"
    suffix = {"torchscript": ".ts", "onnx": ".onnx", "onnx-int8": ".int8.onnx"}[kind]
    chunk, left = exported.chunk_size * FRAME_MS, exported.left_context * FRAME_MS
    return model.with_name(f"{model.stem}{what}.{chunk}-{left}ms{suffix}")


def of_module(kind: str, module: nn.Module, chunk_size: int, left_context: int) -> Backend:
    return Backend(kind, chunk_size, left_context, module.init_state, module)  # type: ignore[arg-type]


@torch.inference_mode()
def check(backend: Backend, plain: Backend) -> None:
    """Compare two steps with eager's, of three rows: of a chunk, and later of two.

    The second comes at once for one row, for the others an hour and a day later.

    Raises:
        UserError: if numbers differ by more than TOLERANCE, or those of int8 by more than rounding.
    """
    states = [each.init_state(3) for each in (backend, plain)]
    block, log_probs = 4 * plain.chunk_size, []
    noise = torch.Generator().manual_seed(0)
    for frames in (block, 2 * block - 3):
        feats = 10 + 3 * torch.randn(3, frames, states[0].feats.size(2), generator=noise)
        lengths = torch.tensor([frames, frames - (3 if frames > block else 0), frames])
        ours, theirs = (
            each.step(feats.to(state.feats), lengths.to(state.feats.device), state)
            for each, state in zip((backend, plain), states, strict=True)
        )
        states = [aged(ours.state), aged(theirs.state)]
        log_probs.append((ours.log_probs, theirs.log_probs))
        pairs = zip((ours.log_probs, *ours.state), (theirs.log_probs, *theirs.state), strict=True)
        worst = max(difference(a, b) for a, b in pairs)
        if backend.kind in EXACT and not worst <= TOLERANCE:
            raise UserError(
                f"backend {backend.kind} differs from eager by {worst:.1e}, over {TOLERANCE:.0e}"
            )
    if backend.kind not in EXACT:
        worst = rounding(*(torch.cat(each, dim=1) for each in zip(*log_probs, strict=True)))
        if not worst <= MOST_ROUNDING:
            raise UserError(
                f"backend {backend.kind} differs from eager by {worst:.0%} of what a label's "
                f"log-probability varies by, over {MOST_ROUNDING:.0%}: export it anew"
            )


def rounding(log_probs: Tensor, exact: Tensor) -> float:
    """The label that differs most: root mean square, as a share of the labels' own deviation.

    Args:
        log_probs: (B, E, V); infinite for another shape, or a number that is not finite.
        exact: (B, E, V).
    """
    if difference(log_probs, exact) == float("inf"):
        return float("inf")
    frames = exact.flatten(0, 1)  # (B·E, V)
    errors = (log_probs.flatten(0, 1) - frames).square().mean(dim=0)  # (V,)
    return float((errors.max() / frames.var(dim=0).mean()).sqrt())
