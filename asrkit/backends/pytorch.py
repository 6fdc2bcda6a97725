"""The network in PyTorch, unchanged, with NumPy's arrays as input and output."""

import copy
import functools
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asrkit.backends.backend import Backend, Output, Spec
from asrkit.backends.transducer import State as LabelState
from asrkit.context import FULL, Context
from asrkit.errors import UserError, shown
from asrkit.model import CTCHead, EncoderState, Head, Network, Step, TransducerHead
from asrkit.model_contents import ModelFile
from asrkit.model_tensors import fingerprint


@dataclass(eq=False)
class OnArrays:
    """A step in PyTorch whose input and output are NumPy's arrays; its states stay tensors."""

    module: Any  # with `init_state`; its inputs may end with a state
    like: Tensor  # has the device and the type of the module's inputs

    def init_state(self, batch_size: int) -> EncoderState:
        return self.module.init_state(batch_size)

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


class EagerParts:
    """Predictor and joiner of a head in PyTorch, on its device."""

    def __init__(self, head: TransducerHead) -> None:
        self.head = head
        self.vocab_size, self.max_symbols = head.vocab_size, head.max_symbols

    def start(self, batch_size: int) -> LabelState:
        """Return the predictor's state before the initial blank."""
        return tuple(each.numpy(force=True) for each in self.head.start(batch_size))

    @torch.inference_mode()
    def predict(self, tokens: np.ndarray, state: LabelState) -> tuple[np.ndarray, LabelState]:
        """Return predictor outputs (B, J) for tokens (B,), and the state after them."""
        output, after = self.head.predict(
            self._tensor(tokens), tuple(self._tensor(each) for each in state)
        )
        return output.numpy(force=True), tuple(each.numpy(force=True) for each in after)

    @torch.inference_mode()
    def project(self, frames: np.ndarray) -> np.ndarray:
        """Return the joiner's share of frames: (…, D) -> (…, J)."""
        return self.head.project(self._tensor(frames)).numpy(force=True)

    @torch.inference_mode()
    def join(self, frames: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        """Return logits (…, V) of projected frames (…, J) and predictor outputs (…, J)."""
        return self.head.join(self._tensor(frames), self._tensor(predicted)).numpy(force=True)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.head.out.weight.device)


def eager(model: Network, context: Context) -> Backend:
    """Return the network unchanged, on any device, in NumPy's precisions, also in full context.

    Args:
        model: network in eval mode.
        context: C, M and R. In full context M and R are 0.

    Raises:
        UserError: for a network in bfloat16.
    """
    if model.encoder.mean.dtype == torch.bfloat16:
        raise UserError("NumPy has no bfloat16: convert the network with model.float() or .half()")
    survive_forks()
    context = FULL if context.full else context
    head = model.head
    spec = Spec(
        num_mels=model.encoder.num_mels,
        rate=model.encoder.rate,
        vocab_size=head.vocab_size,
        device=str(model.encoder.mean.device),
        dtype=str(model.encoder.mean.dtype).removeprefix("torch."),
        context=context,
    )
    weights = functools.cache(lambda: fingerprint(model.state_dict()))  # slow, so computed on use
    step = OnArrays(Step(model.encoder, head, context), model.encoder.mean)

    def run(feats: np.ndarray, lengths: np.ndarray, state: Any) -> Output:
        return Output(*step(feats, lengths, state))

    transducer, ctc = None, None
    if isinstance(head, TransducerHead):
        transducer, ctc = EagerParts(head), head.ctc and functools.partial(log_probs, head.ctc)
    return Backend(
        "eager", spec, step.init_state, run, weights, transducer,
        functools.partial(loss_of, head), ctc,
    )  # fmt: skip


@torch.no_grad()
def loss_of(head: Head, emissions: np.ndarray, tokens: Sequence[int]) -> float | None:
    """Return the head's loss of tokens in nats, see `Backend`."""
    if not tokens or head.frames_needed(tokens) > len(emissions):
        return None
    device = next(head.parameters()).device
    loss = head.loss(
        torch.from_numpy(emissions[None]).to(device), torch.tensor([len(emissions)]),
        torch.tensor([tokens], device=device), torch.tensor([len(tokens)]),
    )  # fmt: skip
    return float(loss)


@torch.inference_mode()
def log_probs(layer: CTCHead, frames: np.ndarray) -> np.ndarray:
    """Compute a CTC layer: (E, D) -> (E, V)."""
    weight = next(layer.parameters())
    return layer.emissions(torch.from_numpy(frames)[None].to(weight))[0].numpy(force=True)


@functools.cache  # forked processes have the result, too
def survive_forks() -> int:
    """Set torch to one thread in every process that is forked from this one from now on.

    A forked process has none of its parent's threads, but OpenMP would wait for them forever.
    Return the id of the process that called this first: one with another id was forked from it.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
    return os.getpid()


def set_threads(threads: int | None) -> None:
    """Set the number of torch's threads for the whole process; None leaves it.

    Raises:
        UserError: for more than one in a forked process.
    """
    if threads is None:
        return
    if threads > 1 and os.getpid() != survive_forks():
        raise UserError(
            f"threads must be 1 in a forked process, got {threads}: OpenMP's threads do not "
            "survive a fork; use more threads in processes started by multiprocessing's spawn"
        )
    torch.set_num_threads(threads)


@contextmanager
def unwarned() -> Iterator[None]:
    """A context manager without torch's warnings, at every call, that TorchScript will end."""
    with warnings.catch_warnings():  # as DeprecationWarning, from torch 2.14 on as FutureWarning
        warnings.filterwarnings("ignore", "`torch.jit")
        yield


def on_device(file: ModelFile, device: torch.device) -> ModelFile:
    """Return the model file with its model on a device; it is copied unless it is there already."""
    present = file.model.encoder.mean.device
    if (present.type, present.index or 0) == (device.type, device.index or 0):
        return file
    return file._replace(model=copy.deepcopy(file.model).to(device))


def known_device(device: str | torch.device) -> torch.device:
    """Return an available device. For a GPU, torch's convolutions are made exact.

    Raises:
        UserError: for a device that is not available.
    """
    names = ["cpu"]
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator()
        names += [f"{kind}:{i}" for i in range(torch.accelerator.device_count())]
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        chosen = None
    if chosen is None or f"{chosen.type}:{chosen.index or 0}" not in ("cpu:0", *names):
        raise UserError(
            f"device must be one of {', '.join(names)} on this machine, got {shown(device)}"
        )
    if chosen.type == "cuda":
        # By default torch permits TF32 there, with 10 bits of mantissa, and cuDNN chooses it by the
        # shape: chunks differ from the whole by 8e-3 (H200), in float32 by 3e-5.
        torch.backends.cudnn.allow_tf32 = False
    return chosen
