"""What a backend is: a network at one chunk size and left context, and its numbers."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from asrkit.audio import HOP, SAMPLE_RATE
from asrkit.model import FULL_CONTEXT, CTCOutput, EncoderState
from asrkit.model.subsampling import num_frames

Step = Callable[[Tensor, Tensor, EncoderState], CTCOutput]


class Spec(NamedTuple):
    """What a program has to know of a network to run it."""

    num_mels: int  # F
    factor: int  # feature frames of an encoder frame
    lookahead: int  # feature frames beyond these that it sees
    vocab_size: int  # V
    device: torch.device
    dtype: torch.dtype  # of its numbers, float32 as a rule
    chunk_size: int  # C, or FULL_CONTEXT
    left_context: int  # M
    lead_frames: int = 0  # feature frames of a stream before its first sample
    right_context: int = 0  # R, encoder frames after it that a chunk sees

    @property
    def frame_ms(self) -> int:
        """Milliseconds of an encoder frame."""
        return milliseconds(self.factor)

    @property
    def context(self) -> str:
        """ "full", or the chunk in milliseconds."""
        full = self.chunk_size == FULL_CONTEXT
        return "full" if full else f"{self.chunk_size * self.frame_ms} ms"

    @property
    def chunk_frames(self) -> int:
        """Feature frames of a chunk."""
        return self.factor * self.chunk_size

    @property
    def ahead_frames(self) -> int:
        """Feature frames beyond its chunks that a step takes."""
        return self.factor * self.right_context + self.lookahead

    @property
    def window_frames(self) -> int:
        """Feature frames that a step of one chunk takes: those that it sees."""
        return self.chunk_frames + self.ahead_frames

    def num_frames(self, feature_frames: int) -> int:
        """E of T feature frames."""
        return num_frames(feature_frames, self.factor, self.lookahead)


class Backend(NamedTuple):
    """A network at one chunk size and left context, on whatever runs it.

        state = backend.init_state(batch_size)
        log_probs, lengths, state = backend.step(feats, lengths, state)

    All steps of a stream but its last take whole chunks and what they see ahead, which comes again
    in the next step: T = n·factor·C + ahead_frames. A stream that has ended goes on until no frame
    is left that makes an encoder frame.
    """

    kind: str
    spec: Spec
    init_state: Callable[[int], EncoderState]
    step: Step  # (B, T, F), (B,), state -> CTCOutput
    weights: Callable[[], str]  # SHA-256 of the network's


def milliseconds(factor: int) -> int:
    """Of an encoder frame of so many feature frames."""
    return factor * HOP * 1000 // SAMPLE_RATE
