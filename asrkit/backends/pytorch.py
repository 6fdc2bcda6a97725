"""The network in PyTorch, unchanged."""

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from asrkit.backends.backend import Backend, Spec
from asrkit.model import FULL, Context, Network, Step
from asrkit.model_file import fingerprint


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


@contextmanager
def unwarned() -> Iterator[None]:
    """A context manager without torch's warnings, at every call, that TorchScript will end."""
    with warnings.catch_warnings():  # as DeprecationWarning, from torch 2.14 on as FutureWarning
        warnings.filterwarnings("ignore", "`torch.jit")
        yield
