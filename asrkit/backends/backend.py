"""The interface of a backend, which runs a network in one context."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from asrkit.model import Context, EncoderState, FrameRate, Head, StepOutput
from asrkit.search import Transducer

MOST_WHOLE = 1500  # encoder frames of a row in full context: memory grows with their square


class Spec(NamedTuple):
    """Sizes and context of a network, which its users need."""

    num_mels: int  # F
    rate: FrameRate
    vocab_size: int  # V
    device: torch.device
    dtype: torch.dtype  # usually float32
    context: Context

    @property
    def context_name(self) -> str:
        """Name of the context: "full", "640 ms", or with right context "320+160 ms"."""
        return self.rate.name(self.context)

    @property
    def chunk_frames(self) -> int:
        """Number of feature frames of a chunk."""
        return self.rate.chunk_frames(self.context)

    @property
    def ahead_frames(self) -> int:
        """Number of feature frames that a step reads beyond its chunks."""
        return self.rate.ahead_frames(self.context)

    @property
    def step_frames(self) -> int:
        """Number of feature frames that a step of one chunk reads."""
        return self.rate.step_frames(self.context)

    def whole_chunks(self, feats: Tensor) -> Tensor:
        """Append zeros to (B, T, F), so that a step of it has whole chunks and what they see."""
        frames = feats.size(1)
        missing = max(self.step_frames - frames, (self.ahead_frames - frames) % self.chunk_frames)
        return functional.pad(feats, (0, 0, 0, missing))


class Backend(NamedTuple):
    """A network in one context, on any runtime.

        state = backend.init_state(batch_size)
        frames, lengths, state = backend.step(feats, lengths, state)

    Each step of a stream but the last has T = n·factor·C + ahead_frames feature frames: n whole
    chunks and their right context, which is passed again in the next step. A stream ends when the
    remaining frames make no encoder frame.
    """

    kind: str
    spec: Spec
    init_state: Callable[[int], EncoderState]
    step: Callable[[Tensor, Tensor, EncoderState], StepOutput]  # (B, T, F), (B,), state
    weights: Callable[[], str]  # SHA-256 of the network's weights
    head: Head  # head of the network in PyTorch, for the loss of a text
    transducer: Transducer | None = None  # predictor and joiner for a search; None: the head's


def of_step(step: Any, reference: Backend) -> Backend:
    """Return a module that takes only whole chunks as a backend, which pads its inputs.

    In full context the module has no state, and takes at most MOST_WHOLE frames; longer recordings
    are passed to eager.

    Args:
        reference: eager backend in the module's context.
    """
    spec = reference.spec

    def run(feats: Tensor, lengths: Tensor, state: EncoderState) -> StepOutput:
        frames = spec.rate.num_frames(feats.size(1))
        emissions, lengths, state = step(spec.whole_chunks(feats), lengths, state)
        return StepOutput(emissions[:, :frames], lengths, state)

    def run_whole(feats: Tensor, lengths: Tensor, state: EncoderState) -> StepOutput:
        frames = spec.rate.num_frames(feats.size(1))
        if not 0 < frames <= MOST_WHOLE:
            return reference.step(feats, lengths, state)
        missing = spec.rate.factor * frames + spec.rate.lookahead - feats.size(1)
        emissions, lengths = step(functional.pad(feats, (0, 0, 0, missing)), lengths)
        return StepOutput(emissions, lengths, state)

    if spec.context.full:
        return reference._replace(step=run_whole)
    return reference._replace(init_state=step.init_state, step=run)
