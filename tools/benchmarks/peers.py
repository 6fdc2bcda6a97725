"""Other toolkits' encoders behind asrkit's subsampling, so that all start from log mels.

All have the reference encoder's sizes; they are called as a `Step` is.
"""

import os
from typing import Any

import torch
from benchmarks import (
    CHANNELS,
    CHUNK_SIZE,
    DIM,
    FACTOR,
    FFN_DIM,
    KERNEL_SIZE,
    LEFT_CONTEXT,
    NUM_HEADS,
    NUM_MELS,
)
from torch import Tensor, nn
from torchaudio.models import Conformer, Emformer

from asrkit.model.subsampling import Conv4Subsampling

EmformerState = tuple[tuple[Tensor, Tensor], list[list[Tensor]] | None]


class Subsampling(Conv4Subsampling):
    def __init__(self) -> None:
        super().__init__(NUM_MELS, DIM, CHANNELS)

    def init_past(self, batch_size: int) -> tuple[Tensor, Tensor]:
        return self.init_state(batch_size, self.out.weight)

    def whole(self, feats: Tensor) -> Tensor:
        """(B, T, F) of whole recordings -> (B, E, D)."""
        real = torch.ones(feats.shape[:2], dtype=torch.bool)
        return self.run(feats, real, *self.init_past(len(feats)))[0]

    def step(
        self, feats: Tensor, past_feats: Tensor, past_hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Lengths of features that are all of samples."""
        real = torch.ones(feats.shape[:2], dtype=torch.bool)
        return self(feats, real, past_feats, past_hidden)


class EmformerStep(nn.Module):
    """torchaudio's Emformer: no convolution module, one feed-forward layer a layer."""

    def __init__(self, num_layers: int, scripted: bool = False) -> None:
        super().__init__()
        self.subsampling = Subsampling()
        self.emformer = Emformer(
            DIM, NUM_HEADS, FFN_DIM, num_layers, CHUNK_SIZE, left_context_length=LEFT_CONTEXT
        ).eval()
        self.infer = torch.jit.script(self.emformer).infer if scripted else self.emformer.infer

    def init_state(self, batch_size: int) -> EmformerState:
        assert batch_size == 1
        return self.subsampling.init_past(1), None

    def forward(
        self, feats: Tensor, lengths: Tensor, state: EmformerState
    ) -> tuple[Tensor, Tensor, EmformerState]:
        """(1, factor·C, F), (1,) and the past -> (1, C, D), (1,) and the new past."""
        x, *past = self.subsampling.step(feats, *state[0])
        encoded, lengths, layers = self.infer(x, lengths // FACTOR, state[1])
        return encoded, lengths, ((past[0], past[1]), layers)


class SpeechBrainStep(nn.Module):
    """speechbrain's Conformer with relative positions, as its TransformerASR streams it.

    Raises:
        ImportError: if speechbrain is not installed.
    """

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        # Or importing it turns off an optimiser that the TorchScript of all others runs with.
        os.environ["SB_DISABLE_QUIRKS"] = "disable_jit_profiling"
        from speechbrain.lobes.models.transformer.Conformer import ConformerEncoder
        from speechbrain.nnet.attention import RelPosEncXL
        from speechbrain.utils.dynamic_chunk_training import DynChunkTrainConfig

        self.subsampling = Subsampling()
        self.positions = RelPosEncXL(DIM)
        self.encoder = ConformerEncoder(num_layers, DIM, FFN_DIM, NUM_HEADS, KERNEL_SIZE)
        self.context = DynChunkTrainConfig(CHUNK_SIZE, LEFT_CONTEXT // CHUNK_SIZE)

    def init_state(self, batch_size: int) -> Any:
        assert batch_size == 1
        return self.subsampling.init_past(1), self.encoder.make_streaming_context(self.context)

    def forward(self, feats: Tensor, lengths: Tensor, state: Any) -> Any:
        """Like the class above; the context is changed in place, as speechbrain does it."""
        past, context = state
        x, *past = self.subsampling.step(feats, *past)
        left = context.layers[0].mha_left_context
        frames = x.size(1) + (0 if left is None else left.size(1))
        positions = self.positions(x.new_empty([1, frames, DIM]))
        encoded, _ = self.encoder.forward_streaming(x, context, positions)
        return encoded, lengths // FACTOR, (past, context)


class ConformerForward(nn.Module):
    """torchaudio's Conformer over a whole recording: no positions and no chunks."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.subsampling = Subsampling()
        self.conformer = Conformer(DIM, NUM_HEADS, FFN_DIM, num_layers, KERNEL_SIZE)

    def forward(self, feats: Tensor) -> object:
        x = self.subsampling.whole(feats)
        return self.conformer(x, torch.full((len(x),), x.size(1)))


class SpeechBrainForward(nn.Module):
    """speechbrain's Conformer over a whole recording, in full context.

    Raises:
        ImportError: if speechbrain is not installed.
    """

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.step = SpeechBrainStep(num_layers)

    def forward(self, feats: Tensor) -> object:
        x = self.step.subsampling.whole(feats)
        return self.step.encoder(x, pos_embs=self.step.positions(x))
