"""The network as it is, in PyTorch: on any device, in any precision, in full context too."""

import functools

from asrkit.backends.backend import Backend, Spec
from asrkit.model import FULL_CONTEXT, ConformerCTC, CTCStep, FullContextStep
from asrkit.model_file import fingerprint


def eager(
    model: ConformerCTC, chunk_size: int, left_context: int, right_context: int = 0
) -> Backend:
    """The network, which has to be in eval mode.

    In full context M and R are 0, whatever is asked for.
    """
    full = chunk_size == FULL_CONTEXT
    module = (
        FullContextStep(model) if full else CTCStep(model, chunk_size, left_context, right_context)
    )
    spec = Spec(
        num_mels=model.encoder.num_mels,
        factor=model.encoder.factor,
        lookahead=model.encoder.lookahead,
        vocab_size=model.head.out_features,
        device=model.head.weight.device,
        dtype=model.head.weight.dtype,
        chunk_size=chunk_size,
        left_context=0 if full else left_context,
        lead_frames=model.encoder.lead_frames,
        right_context=0 if full else right_context,
    )
    weights = functools.cache(lambda: fingerprint(model.state_dict()))  # takes a while: when asked
    return Backend("eager", spec, module.init_state, module, weights)
