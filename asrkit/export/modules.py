"""The modules that are exported: the network's own step, from features or from samples."""

import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from asrkit.audio import HOP, Frontend
from asrkit.backends import Backend
from asrkit.backends.backend import Output, State
from asrkit.context import FULL_CONTEXT, Context
from asrkit.errors import UserError
from asrkit.model import EncoderState, JoinerStep, Network, PredictorStep, Step, TransducerHead
from asrkit.model.attention import ChunkAttention
from asrkit.model.frontend import TorchFrontend


class SamplesOutput(NamedTuple):
    frames: Tensor  # (B, E, V), log-probabilities for CTC
    lengths: Tensor  # (B,) int64, valid encoder frames
    past: Tensor  # (B, P)
    state: EncoderState


class SamplesStep(nn.Module):
    """Frontend and network in one step: samples to what a search reads.

    The first P samples of a stream are its first `past`: 240 for Kaldi's frontend, and 160 for each
    feature frame of look-ahead. Every following step has whole chunks of `chunk_samples`. The last
    steps are padded with zeros, and `lengths` has the number of real samples after `past`. With
    right context, the stream's last R frames are those of samples in `past`: further steps of zeros
    return these frames, with `lengths` of 0 and less. The samples include those before and after a
    stream, see `of_stream`.
    """

    def __init__(self, frontend: Frontend, step: Step) -> None:
        super().__init__()
        self.frontend, self.step = TorchFrontend(frontend), step
        rate, context = step.encoder.rate, step.context
        self.ahead_frames = rate.ahead_frames(context)
        self.past_size = frontend.frame_size - HOP + HOP * self.ahead_frames  # P
        self.chunk_samples = HOP * rate.chunk_frames(context)

    def init_state(self, batch_size: int) -> EncoderState:
        return self.step.init_state(batch_size)

    def forward(
        self, samples: Tensor, lengths: Tensor, past: Tensor, state: EncoderState
    ) -> SamplesOutput:
        """Compute a step: samples (B, n·chunk_samples), valid lengths (B,), past (B, P), state."""
        samples = torch.cat([past, samples], dim=1)
        # Not negative, because ONNX rounds a quotient towards zero.
        lengths = (lengths + HOP * self.ahead_frames).clamp(min=0) // HOP
        frames, lengths, state = self.step(self.frontend.frames(samples), lengths, state)
        return SamplesOutput(frames, lengths, samples[:, -past.size(1) :], state)


def of_samples_step(step: Any, reference: Backend, frontend: Frontend) -> Backend:
    """Return a `SamplesStep`, or an export of it, as a backend.

    Its features are (B, T, HOP) samples. The past of a step is what the step before read ahead, so
    it is part of the look-ahead, in whole frames.
    """
    window = frontend.frame_size - HOP
    past_size = window + HOP * reference.spec.ahead_frames
    rate = reference.spec.rate
    rate = rate._replace(lookahead=rate.lookahead + -(-window // HOP))
    spec = reference.spec._replace(num_mels=HOP, rate=rate)

    def run(feats: np.ndarray, lengths: np.ndarray, state: State) -> Output:
        frames = rate.num_frames(feats.shape[1])
        samples = spec.whole_chunks(feats).reshape(len(feats), -1)
        past, new = np.split(samples[:, -window % HOP :], [past_size], axis=1)
        lengths = HOP * (lengths - spec.ahead_frames)
        emissions, lengths, after, state = step(new, lengths, past, state)
        if not np.array_equal(after, samples[:, -past_size:]):
            raise UserError(f"new_past must be the last {past_size} samples: export it again")
        return Output(emissions[:, :frames], lengths, state)

    return reference._replace(spec=spec, init_state=step.init_state, step=run)


def of_stream(frontend: Frontend, samples: np.ndarray) -> np.ndarray:
    """Add to whole streams (B, N) the samples before and after them for a `SamplesStep`."""
    ended = frontend.ended(samples, np.full(len(samples), samples.shape[1]))
    return frontend.beginning(np.concatenate([frontend.start(len(samples)), ended], axis=1))


class WholeStep(nn.Module):
    """A network in full context: features of whole recordings to the head's emissions, no state.

    The lengths of the graph are dynamic, so the attention's queries cannot be split into tiles.
    """

    def __init__(self, model: Network) -> None:
        super().__init__()
        self.model = copy.deepcopy(model)
        for module in self.model.modules():
            if isinstance(module, ChunkAttention):
                module.max_rows = FULL_CONTEXT

    def forward(self, feats: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Compute (B, n·factor + lookahead, F), valid lengths (B,) -> (B, n, V), frames (B,)."""
        encoder = self.model.encoder
        state = encoder.init_state(feats.size(0), 0)
        context = Context((feats.size(1) - encoder.rate.lookahead) // encoder.rate.factor)
        output, _ = encoder.run(feats, lengths, state, context, encoder.tables(context))
        return self.model.head.emissions(output.frames), output.lengths


def part_steps(head: TransducerHead) -> list[nn.Module]:
    """Return predictor and joiner as networks of their own, in the order of PARTS."""
    return [PredictorStep(head).eval(), JoinerStep(head).eval()]
