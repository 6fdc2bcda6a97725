"""A backend: a network in one context, and its numbers."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from asrkit.model import Context, EncoderState, FrameRate, Head, NetworkOutput

Step = Callable[[Tensor, Tensor, EncoderState], NetworkOutput]


class Spec(NamedTuple):
    """Numbers that a program needs to run a network."""

    num_mels: int  # F
    rate: FrameRate
    vocab_size: int  # V
    device: torch.device
    dtype: torch.dtype  # of its numbers, float32 as a rule
    context: Context

    @property
    def context_name(self) -> str:
        """ "full", or the chunk's length such as "640 ms"."""
        return self.rate.name(self.context)

    @property
    def chunk_frames(self) -> int:
        """Feature frames of a chunk."""
        return self.rate.chunk_frames(self.context)

    @property
    def ahead_frames(self) -> int:
        """Feature frames that a step takes beyond its chunks."""
        return self.rate.ahead_frames(self.context)

    @property
    def step_frames(self) -> int:
        """Feature frames that a step of one chunk takes."""
        return self.rate.step_frames(self.context)


class Backend(NamedTuple):
    """A network in one context, on whatever runs it.

        state = backend.init_state(batch_size)
        frames, lengths, state = backend.step(feats, lengths, state)

    All steps of a stream but its last take whole chunks and what they see ahead, which comes again
    in the next step: T = n·factor·C + ahead_frames. A stream that has ended goes on until no frame
    is left that makes an encoder frame.
    """

    kind: str
    spec: Spec
    init_state: Callable[[int], EncoderState]
    step: Step  # (B, T, F), (B,), state -> NetworkOutput
    weights: Callable[[], str]  # SHA-256 of the network's
    head: Head  # of the network in PyTorch: the loss of a text
