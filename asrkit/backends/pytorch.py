"""The network in PyTorch: eager, or through torch.compile."""

import functools

import torch

from asrkit.backends.backend import Backend, Spec
from asrkit.model import FULL, Context, FullContextStep, Network, NetworkStep
from asrkit.model_file import ModelFile, fingerprint


def eager(model: Network, context: Context) -> Backend:
    """Return the network unchanged, on any device, in any precision, also in full context.

    Args:
        model: network in eval mode.
        context: C, M and R. In full context M and R are 0.
    """
    context = FULL if context.full else context
    module = FullContextStep(model) if context.full else NetworkStep(model, context)
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


def compiled(file: ModelFile, plain: Backend) -> Backend:
    """Return the eager backend through torch.compile, on any device; the first step compiles."""
    return plain._replace(kind="compiled", step=torch.compile(plain.step, dynamic=True))
