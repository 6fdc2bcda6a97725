"""The streaming encoder, of Conformer or Transformer layers.

Design decisions:
- Attention is computed in chunks of C frames that see the M frames before them. An offline pass is
  one step from the initial state (see `attention`), and full context is one chunk.
- The position encoding is exchangeable (see `positions`). Conformer layers have macaron
  feed-forward modules, causal convolutions without BatchNorm, and a final LayerNorm (Gulati et al.
  2020). Transformer layers are those of Whisper (see `layer`).
- Global mean and variance normalisation is part of the encoder, so that an export contains it.
- The state is a NamedTuple of tensors, batch first, of fixed shapes: streams are joined with
  torch.cat on dimension 0 of each field and split by slicing.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.context import Context, FrameRate, fitted, num_frames
from asrkit.model.attention import ChunkAttention, LayerStep
from asrkit.model.chunks import blocks_of, chunk_frames, valid_keys
from asrkit.model.cpu_training import Dropout
from asrkit.model.layer import ConformerLayer, LayerPast, TransformerLayer
from asrkit.model.positions import build_positions
from asrkit.model.subsampling import build_subsampling, num_valid
from asrkit.registry import refusal

LAYERS = ("conformer", "transformer")


class EncoderState(NamedTuple):
    """The past of B streams, with the pasts of all layers stacked."""

    feats: Tensor  # (B, 1, F) last feature frame, normalised; (B, 0, F) without padding
    hidden: Tensor  # (B, S, 1, …) last frame between convolutions; empty without padding
    keys: Tensor  # (B, L, H, M, Dh) of the last M encoder frames; Dh + 1 for absolute_keys
    values: Tensor  # (B, L, H, M, Dh)
    conv: Tensor  # (B, L, D, K-1); (B, L, 0, 0) without convolutions
    position: Tensor  # (B,) int64, encoder frames consumed


def state_of(
    feats: Tensor, hidden: Tensor, pasts: list[LayerPast], position: Tensor
) -> EncoderState:
    """Return the state of streams from the pasts of their parts."""
    keys = torch.stack([past.keys for past in pasts], 1)
    values = torch.stack([past.values for past in pasts], 1)
    conv = torch.stack([past.conv for past in pasts], 1)
    return EncoderState(feats, hidden, keys, values, conv, position)


class StepOutput(NamedTuple):
    """The output of one step of B streams, of the encoder or of a network with its head."""

    frames: Tensor  # (B, E, D) or (B, E, V), E = num_frames(T); log-probabilities for CTC
    lengths: Tensor  # (B,) int64, valid encoder frames of this step
    state: EncoderState


class ConformerEncoder(nn.Module):
    """Encoder of log mel features, in chunks.

        state = encoder.init_state(batch_size, left_context)
        frames, lengths, state = encoder(feats, lengths, state, chunk_size)

    Args:
        num_mels: F.
        dim: D, a multiple of num_heads.
        num_heads: H.
        num_layers: L.
        ffn_dim: width of the feed-forward layers.
        kernel_size: K of the causal depthwise convolutions.
        dropout: dropout probability, everywhere.
        position: kind of position encoding, see `positions.KINDS`, or a dict of its options and
            the kind: {"kind": "shaw", "max_distance": 32}.
        subsampling: kind of subsampling, see `subsampling.KINDS`, or a dict of its options and the
            kind: {"kind": "conv4", "channels": 64}.
        conv_norm: norm in the convolutions: "layer_norm" or "affine".
        conv_padding: layer of the convolution module whose input is padded with zeros before the
            stream: "depthwise" or "pointwise".
        after_norm: a LayerNorm after the last layer.
        layer: "conformer", or "transformer" (without convolutions), see `layer`.
        kernels: use attention kernels for NVIDIA GPUs where possible, see `kernels`.

    Attributes:
        rate: relation of feature frames to encoder frames, see `FrameRate`.

    Raises:
        ValueError: for numbers that do not fit each other.
    """

    rate: FrameRate
    mean: Tensor  # (F,) mean of the features
    scale: Tensor  # (F,) 1 / standard deviation of the features

    def __init__(
        self,
        num_mels: int = 80,
        dim: int = 256,
        num_heads: int = 4,
        num_layers: int = 12,
        ffn_dim: int = 2048,
        kernel_size: int = 15,
        dropout: float = 0.0,
        position: str | Mapping[str, Any] = "relative",
        subsampling: str | Mapping[str, Any] = "conv4",
        conv_norm: str = "layer_norm",
        conv_padding: str = "depthwise",
        after_norm: bool = False,
        layer: str = "conformer",
        kernels: bool = False,
    ) -> None:
        super().__init__()
        if dim % num_heads or dim % 2:
            raise ValueError(
                f"dim must be even and a multiple of num_heads, got {dim}, {num_heads}"
            )
        if layer not in LAYERS:
            raise ValueError(f"layer {refusal(layer, LAYERS)}")
        if kernel_size < 2:
            raise ValueError(f"kernel_size must be at least 2, got {kernel_size}")
        self.num_mels, self.dim, self.num_heads = num_mels, dim, num_heads
        self.register_buffer("mean", torch.zeros(num_mels))
        self.register_buffer("scale", torch.ones(num_mels))
        self.subsampling = build_subsampling(subsampling, num_mels, dim)
        self.rate = self.subsampling.rate
        self.dropout = Dropout(dropout)
        self.position, positions = build_positions(position, dim, num_heads, num_layers)
        self.layers = nn.ModuleList()
        for layer_position in positions:
            attention = ChunkAttention(dim, num_heads, dropout, layer_position, kernels)
            if layer == "transformer":
                self.layers.append(TransformerLayer(attention, dim, ffn_dim))
                continue
            self.layers.append(
                ConformerLayer(attention, dim, ffn_dim, kernel_size, conv_norm, conv_padding)
            )
        self.after_norm = nn.LayerNorm(dim) if after_norm else nn.Identity()

    def set_statistics(self, mean: Tensor, scale: Tensor) -> None:
        """Set the features' mean (F,) and 1 / standard deviation (F,)."""
        self.mean.copy_(mean)
        self.scale.copy_(scale)

    def init_state(self, batch_size: int, left_context: int) -> EncoderState:
        """Return the past of streams that have not started, with room for M = left_context
        frames."""
        pasts = [layer.init_state(batch_size, left_context, self.mean) for layer in self.layers]
        feats, hidden = self.subsampling.init_state(batch_size, self.mean)
        position = torch.zeros([batch_size], dtype=torch.int64, device=self.mean.device)
        return state_of(feats, hidden, pasts, position)

    def forward(
        self,
        feats: Tensor,
        lengths: Tensor,
        state: EncoderState,
        chunk_size: int,
        right_context: int = 0,
    ) -> StepOutput:
        """Compute one step of B streams; an offline pass is one step from `init_state`.

        Args:
            feats: (B, T, F) log mels; the values of the first `lead_frames` frames of a stream do
                not matter. Each step but the last of a stream has T = n·factor·C + ahead_frames(R)
                frames, n whole chunks and their right context, which is passed again in the next
                step. The last step is padded with zeros here.
            lengths: (B,) valid frames of each row in this step. A row shorter than T has ended:
                do not step its state again.
            state: past from `init_state` or the step before. Its shape determines M.
            chunk_size: C, encoder frames. FULL_CONTEXT, or any number from num_frames(T) on, makes
                the step one chunk.
            right_context: R, encoder frames that a frame sees after its chunk. They are computed
                anew for each chunk, so a step takes 1 + R/C times as long.

        Returns:
            E = num_frames(T) frames (B, E, D), finite but not zero past `lengths`. If a step has
            more than one chunk, its last R frames only serve as right context and are not returned.
            To end a stream, pass a step of at most R frames, or append R·factor zero frames.
        """
        context = Context(chunk_size, state.keys.size(3), right_context)
        return self.run(feats, lengths, state, context, None, None, 0)[0]  # all, for TorchScript

    def tables(self, context: Context) -> list[Tensor]:
        """Return the position tables of a context: of the frames, then of each layer. They do not
        depend on the input, so `Step` keeps them."""
        layers = [layer.attention.table(context, self.mean) for layer in self.layers]
        return [self.position.table(self.mean)] + layers  # noqa: RUF005, for TorchScript

    def run(
        self,
        feats: Tensor,
        lengths: Tensor,
        state: EncoderState,
        context: Context,
        tables: list[Tensor] | None = None,
        layers: list[int] | None = None,
        offset: int = 0,
    ) -> tuple[StepOutput, list[Tensor]]:
        """Compute one step of B streams for `forward`, exports and the loss.

        Args:
            feats: (B, T, F), see `forward`.
            context: C, M and R; M is that of the state.
            tables: tables of this context; a shorter step is padded to whole chunks. None: the
                tables are computed here, and a chunk is at most as long as the step.
            layers: layers whose output is returned, counted from 1, in ascending order; 0 is the
                subsampling.
            offset: frames that the position encoding adds to every frame's number, for training.

        Returns:
            The output of the last layer, and (B, E, D) of each requested layer.
        """
        frames = num_frames(feats.size(1), self.rate)  # E, including the right context
        if tables is None:
            context = fitted(context, frames)
            tables = self.tables(context)
        ahead = context.right
        feats, real = self.normalize(feats, lengths, state.position, context)
        x, new_feats, hidden = self.subsampled(feats, real, state, ahead)  # (B, n·C + R, D)
        total = x.size(1) - ahead  # n·C
        lengths = num_valid(lengths, self.rate)
        places = state.position + offset if offset else state.position  # (B,)
        vectors = self.position.vectors(x, places, tables[0])
        valid = valid_keys(state.position, lengths, context, total)
        step = LayerStep(valid, blocks_of(vectors, context.chunk_size, ahead), ahead)
        numbers: list[int] = [] if layers is None else layers
        outputs: list[Tensor] = []
        if 0 in numbers:
            outputs.append(x[:, :total][:, :frames])
        x = self.dropout(self.position(x, places, tables[0]))
        x = blocks_of(x, context.chunk_size, ahead)  # (B, n·(C+R), D)
        keys, values, conv = state.keys.unbind(1), state.values.unbind(1), state.conv.unbind(1)
        pasts: list[LayerPast] = []
        for i, layer in enumerate(self.layers):
            x, past = layer(x, step, tables[i + 1], LayerPast(keys[i], values[i], conv[i]))
            if i + 1 in numbers:
                outputs.append(self.output(x, context, frames))
            pasts.append(past)
        is_returned = len(self.layers) in numbers
        encoded = outputs[-1] if is_returned else self.output(x, context, frames)
        new_state = state_of(new_feats, hidden, pasts, state.position + total)
        return StepOutput(encoded, lengths.clamp(max=total), new_state), outputs

    def output(self, x: Tensor, context: Context, frames: int) -> Tensor:
        """Return the chunks' frames of a layer's blocks: (B, n·(C+R), D) -> (B, E, D)."""
        return self.after_norm(
            chunk_frames(x, context.chunk_size + context.right, context.right)[:, :frames]
        )

    def subsampled(
        self, feats: Tensor, real: Tensor, state: EncoderState, ahead: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(B, factor·(n·C + R) + lookahead, F) -> (B, n·C + R, D), and the past after n·C."""
        if ahead == 0:
            return self.subsampling.run(feats, real, state.feats, state.hidden)
        size = feats.size(1) - ahead * self.rate.factor
        chunks, past, hidden = self.subsampling.run(
            feats[:, :size], real[:, :size], state.feats, state.hidden
        )
        first = size - self.rate.lookahead
        seen, _, _ = self.subsampling(feats[:, first:], real[:, first:], past, hidden)
        return torch.cat([chunks, seen], dim=1), past, hidden

    def normalize(
        self, feats: Tensor, lengths: Tensor, position: Tensor, context: Context
    ) -> tuple[Tensor, Tensor]:
        """Return the normalised features of whole chunks and their right context.

        Returns:
            (B, T, F) with T = factor·(n·C + R) + lookahead, zero outside the samples; and a mask
            (B, T) of the frames that contain samples. Feature frames that do not fill an encoder
            frame are dropped.
        """
        rate, numbers = self.rate, torch.arange(feats.size(1), device=feats.device)
        real = numbers < lengths[:, None]  # (B, T)
        if rate.lead_frames > 0:
            real = real & (numbers + rate.factor * position[:, None] >= rate.lead_frames)
        feats = ((feats - self.mean) * self.scale).masked_fill(~real.unsqueeze(2), 0.0)
        size = max(1, num_frames(feats.size(1), rate) - context.right)  # of the chunks
        frames = size + -size % context.chunk_size + context.right
        padding = rate.factor * frames + rate.lookahead - feats.size(1)
        return functional.pad(feats, (0, 0, 0, padding)), functional.pad(real, (0, padding))
