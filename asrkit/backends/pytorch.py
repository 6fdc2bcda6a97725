"""The network in PyTorch, unchanged, with NumPy's arrays as input and output."""

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asrkit.backends.backend import Backend, Output, Spec
from asrkit.backends.transducer import EagerParts
from asrkit.context import FULL, Context
from asrkit.model import EncoderState, Network, Step, TransducerHead
from asrkit.model_file import fingerprint


class OnArrays:
    """A step in PyTorch whose input and output are NumPy's arrays; its states stay tensors.

    Args:
        module: module with `init_state`, whose inputs may end with a state.
        like: tensor with the device and the type of the module's inputs.
    """

    def __init__(self, module: Any, like: Tensor) -> None:
        self.module, self.like = module, like

    def init_state(self, batch_size: int) -> EncoderState:
        state: EncoderState = self.module.init_state(batch_size)
        return state

    @torch.inference_mode()
    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        outputs = self.module(*(self._tensors(each) for each in inputs))
        arrays = [each.numpy(force=True) if isinstance(each, Tensor) else each for each in outputs]
        return tuple(arrays)

    def _tensors(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return EncoderState(*value)
        tensor = torch.from_numpy(value)
        return tensor.to(self.like) if tensor.is_floating_point() else tensor.to(self.like.device)


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
        device=str(model.encoder.mean.device),
        dtype=str(model.encoder.mean.dtype).removeprefix("torch."),
        context=context,
    )
    weights = functools.cache(lambda: fingerprint(model.state_dict()))  # slow, so computed on use
    parts = EagerParts(model.head) if isinstance(model.head, TransducerHead) else None
    step = OnArrays(module, model.encoder.mean)

    def run(feats: np.ndarray, lengths: np.ndarray, state: Any) -> Output:
        return Output(*step(feats, lengths, state))

    return Backend("eager", spec, step.init_state, run, weights, model.head, parts)


@contextmanager
def unwarned() -> Iterator[None]:
    """A context manager without torch's warnings, at every call, that TorchScript will end."""
    with warnings.catch_warnings():  # as DeprecationWarning, from torch 2.14 on as FutureWarning
        warnings.filterwarnings("ignore", "`torch.jit")
        yield
