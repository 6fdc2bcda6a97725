"""The network as it is, in PyTorch: on any device, in any precision, in full context too."""

import functools

from asrkit.backends.backend import Backend, Spec
from asrkit.model import FULL, Context, FullContextStep, Network, NetworkStep
from asrkit.model_file import fingerprint


def eager(model: Network, context: Context) -> Backend:
    """The network, which has to be in eval mode. In full context M and R are 0."""
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
    weights = functools.cache(lambda: fingerprint(model.state_dict()))  # takes a while: when asked
    return Backend("eager", spec, module.init_state, module, weights, model.head)
