"""The network in PyTorch: eager, or through torch.compile."""

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from asrkit.backends.backend import Backend, Spec
from asrkit.model import (
    FULL,
    Context,
    EncoderState,
    Network,
    Step,
    StepOutput,
)
from asrkit.model_file import ModelFile, fingerprint


def eager(model: Network, context: Context) -> Backend:
    """Return the network unchanged, on any device, in any precision, also in full context.

    Args:
        model: network in eval mode.
        context: C, M and R. In full context M and R are 0.
    """
    context = FULL if context.full else context
    module = Step(model.encoder, model.head, context)
    spec = Spec(
        num_mels=model.encoder.num_mels,
        rate=model.encoder.rate,
        vocab_size=model.head.vocab_size,
        device=model.encoder.mean.device,
        dtype=model.encoder.mean.dtype,
        context=context,
    )
    weights = functools.cache(lambda: fingerprint(model.state_dict()))  # slow, so computed on use
    return Backend("eager", spec, module.init_state, module, weights, model.head)


def compiled(file: ModelFile, reference: Backend) -> Backend:
    """Return the eager backend through torch.compile, for a GPU; the first steps compile.

    Chunks are computed one after another, so one number of frames is compiled, for any number of
    rows. A step of any number of frames takes minutes to compile.
    """
    spec, step = reference.spec, torch.compile(reference.step)

    def run(feats: Tensor, lengths: Tensor, state: EncoderState) -> StepOutput:
        frames, sizes = spec.rate.num_frames(feats.size(1)), torch.zeros_like(lengths)
        feats, made = spec.whole_chunks(feats), []
        for start in range(0, feats.size(1) - spec.ahead_frames, spec.chunk_frames):
            part = feats[:, start : start + spec.step_frames].contiguous()
            state = EncoderState(*(each.contiguous() for each in state))  # each stride compiles
            output = step(part, (lengths - start).clamp(0, spec.step_frames), state)
            made.append(output.frames)
            sizes, state = sizes + output.lengths, output.state
        return StepOutput(torch.cat(made, dim=1)[:, :frames], sizes, state)  # (B, E, V)

    return reference._replace(kind="compiled", step=run)


@contextmanager
def unwarned() -> Iterator[None]:
    """A context manager without torch's warnings, at every call, that TorchScript will end."""
    with warnings.catch_warnings():  # as DeprecationWarning, from torch 2.14 on as FutureWarning
        warnings.filterwarnings("ignore", "`torch.jit")
        yield
