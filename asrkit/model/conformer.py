"""The streaming Conformer encoder.

Decisions, in one place:
- attention in chunks of C frames that see the M frames before them; offline is one step from the
  initial state (see `attention`), full context is one chunk;
- any position encoding (see `positions`), macaron feed-forward layers, causal convolutions without
  BatchNorm, a final LayerNorm in each layer (Gulati et al. 2020; see `layer`);
- global mean and variance normalisation inside the encoder, so that an export holds it;
- what rows remember is a NamedTuple of tensors, batch first, of fixed shapes: streams are joined
  with torch.cat on dimension 0 of each field and split by slicing.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.model.attention import ChunkAttention
from asrkit.model.blocks import blocks_of, own_frames, valid_keys
from asrkit.model.dropout import Dropout
from asrkit.model.layer import ConformerLayer
from asrkit.model.positions import build_positions
from asrkit.model.subsampling import build_subsampling, rounding

FULL_CONTEXT = 1 << 30  # a chunk_size that no utterance reaches
FEATURE_FRAME_MS = 10


class EncoderState(NamedTuple):
    """The past of B streams."""

    feats: Tensor  # (B, 1, F) last feature frame, normalised; without padding (B, 0, F)
    hidden: Tensor  # (B, S, 1, …) last frame between the subsampling's convolutions; likewise
    keys: Tensor  # (B, L, H, M, Dh) of the last M encoder frames; of absolute_keys Dh + 1
    values: Tensor  # (B, L, H, M, Dh)
    conv: Tensor  # (B, L, D, K-1)
    position: Tensor  # (B,) int64, encoder frames consumed


class EncoderOutput(NamedTuple):
    encoded: Tensor  # (B, E, D), E = num_frames(T)
    lengths: Tensor  # (B,) int64, valid encoder frames of this step
    state: EncoderState


class PositionTables(NamedTuple):
    frames: Tensor  # of the encoding that acts on the frames
    layers: Tensor  # (L, ...) of the one in each layer


class ConformerEncoder(nn.Module):
    """Log mel features to encoder frames, in chunks.

        state = encoder.init_state(batch_size, left_context)
        encoded, lengths, state = encoder(feats, lengths, state, chunk_size)

    Args:
        num_mels: F.
        dim: D, a multiple of num_heads.
        num_heads: H.
        num_layers: L.
        ffn_dim: width of the feed-forward layers.
        kernel_size: K of the causal depthwise convolutions.
        dropout: everywhere.
        position: kind of position encoding, see `positions.KINDS`, or its options with the kind
            among them: {"kind": "shaw", "max_distance": 32}.
        subsampling: kind of subsampling, see `subsampling.KINDS`, or its options likewise:
            {"kind": "conv4", "channels": 64}.
        conv_norm: norm in the convolutions: "layer_norm" or "affine".
        conv_padding: layer of the convolutions before which zeros stand for the frames before a
            stream: "depthwise" or "pointwise".
        after_norm: a LayerNorm after the last layer.
        kernels: attention by kernels for NVIDIA GPUs where they can, see `fused_attention`.

    Attributes:
        factor: feature frames in an encoder frame, as the subsampling has it.
        lookahead: feature frames beyond these that it sees, likewise.
        lead_frames: feature frames of each stream before its first sample, likewise: encoder frame
            e then ends with feature frame (e+1)·factor - lead_frames - 1 of the samples.
        frame_ms: milliseconds of an encoder frame.

    Raises:
        ValueError: for numbers that do not fit each other.
    """

    mean: Tensor  # (F,) of the features
    scale: Tensor  # (F,) 1 / their standard deviation

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
        kernels: bool = False,
    ) -> None:
        super().__init__()
        if dim % num_heads or dim % 2:
            raise ValueError(
                f"dim must be even and a multiple of num_heads, got {dim}, {num_heads}"
            )
        if kernel_size < 2:
            raise ValueError(f"kernel_size must be at least 2, got {kernel_size}")
        self.num_mels, self.dim, self.num_heads = num_mels, dim, num_heads
        self.kernel_size = kernel_size
        self.register_buffer("mean", torch.zeros(num_mels))
        self.register_buffer("scale", torch.ones(num_mels))
        self.subsampling = build_subsampling(subsampling, num_mels, dim)
        self.factor: int = self.subsampling.factor  # type: ignore[assignment]
        self.lookahead: int = self.subsampling.lookahead  # type: ignore[assignment]
        self.lead_frames: int = self.subsampling.lead_frames  # type: ignore[assignment]
        self.rounding = rounding(self.factor, self.lookahead)
        self.frame_ms = FEATURE_FRAME_MS * self.factor
        self.dropout = Dropout(dropout)
        self.position, positions = build_positions(position, dim, num_heads, num_layers)
        self.key_dim = dim // num_heads + positions[0].extra_key_dim
        self.layers = nn.ModuleList()
        for layer_position in positions:
            attention = ChunkAttention(dim, num_heads, dropout, layer_position, kernels)
            layer = ConformerLayer(attention, dim, ffn_dim, kernel_size, conv_norm, conv_padding)
            self.layers.append(layer)
        self.after_norm = nn.LayerNorm(dim) if after_norm else nn.Identity()

    @torch.jit.unused
    def set_statistics(self, mean: Tensor, scale: Tensor) -> None:
        """Set the features' mean (F,) and 1 / standard deviation (F,)."""
        self.mean.copy_(mean)
        self.scale.copy_(scale)

    @torch.jit.export
    def init_state(self, batch_size: int, left_context: int) -> EncoderState:
        """The past of streams that have not begun, with room for M = left_context frames."""
        like = self.mean
        layers, dim = len(self.layers), self.dim
        keys = [batch_size, layers, self.num_heads, left_context, self.key_dim]
        feats = [batch_size] + self.subsampling.feats_shape  # noqa: RUF005, for TorchScript
        hidden = [batch_size] + self.subsampling.hidden_shape  # noqa: RUF005
        return EncoderState(
            feats=like.new_zeros(feats),
            hidden=like.new_zeros(hidden),
            keys=like.new_zeros(keys),
            values=like.new_zeros(keys[:4] + [dim // self.num_heads]),  # noqa: RUF005
            conv=like.new_zeros([batch_size, layers, dim, self.kernel_size - 1]),
            position=torch.zeros([batch_size], dtype=torch.int64, device=like.device),
        )

    def forward(
        self,
        feats: Tensor,
        lengths: Tensor,
        state: EncoderState,
        chunk_size: int,
        right_context: int = 0,
    ) -> EncoderOutput:
        """One step of B streams; offline is one step from `init_state`.

        Args:
            feats: (B, T, F) log mels, from `lead_frames` on whose values do not matter. All steps
                of a stream but its last are whole chunks and what they see ahead, which comes
                again in the next step (T = n·factor·C + ahead_frames(R)); the last is padded here
                with zeros.
            lengths: (B,) valid frames of each row in this step. A row shorter than T has ended:
                its state is not to be stepped further.
            state: the past, from `init_state` or the step before. M is its shape.
            chunk_size: C, encoder frames; FULL_CONTEXT, or anything from num_frames(T) up, is one
                chunk.
            right_context: R, encoder frames after its chunk that a frame sees. They are computed
                anew with each chunk, which takes 1 + R/C times as long.

        Returns:
            EncoderOutput with E = num_frames(T) frames, finite but not zero past `lengths`. Of more
            frames than a chunk, the last R are only seen: a stream ends with a step of at most R
            frames, or with R·factor frames more than it has.
        """
        chunk_size = self.block_size(chunk_size, feats.size(1))
        ahead = self.seen_ahead(chunk_size, right_context, feats.size(1))
        tables = self.tables(state.keys.size(3), chunk_size + ahead)
        layers, lengths, state = self.step(feats, lengths, state, chunk_size, ahead, tables)
        return EncoderOutput(layers[-1], lengths, state)

    def num_frames(self, feature_frames: int) -> int:
        """E, the encoder frames of T feature frames; see `subsampling.num_frames`."""
        return max(0, feature_frames + self.rounding) // self.factor

    @torch.jit.export
    def num_valid(self, lengths: Tensor) -> Tensor:
        """As `num_frames`, of (B,) feature frames."""
        return (lengths + self.rounding).clamp(min=0) // self.factor

    def block_size(self, chunk_size: int, feature_frames: int) -> int:
        """Frames of a block: C, or all there are, and at least one."""
        return min(chunk_size, max(1, self.num_frames(feature_frames)))

    def seen_ahead(self, chunk_size: int, right_context: int, feature_frames: int) -> int:
        """R, or 0 where one chunk holds all frames."""
        return right_context if self.num_frames(feature_frames) > chunk_size else 0

    def ahead_frames(self, right_context: int) -> int:
        """Feature frames beyond its chunks that a step takes."""
        return self.factor * right_context + self.lookahead

    @torch.jit.export
    def tables(self, left_context: int, block_size: int) -> PositionTables:
        """The position tables of blocks of C + R frames; no input matters to them: `EncoderStep`
        keeps them."""
        frames = self.position.table(self.mean)
        return PositionTables(frames, self.layer_tables(left_context, block_size))

    def layer_tables(self, left_context: int, block_size: int) -> Tensor:
        """Of the encoding in each layer: (L, ...)."""
        tables: list[Tensor] = []
        for layer in self.layers:
            tables.append(layer.attention.position.table(left_context, block_size, self.mean))
        return torch.stack(tables)

    @torch.jit.export
    def step(
        self,
        feats: Tensor,
        lengths: Tensor,
        state: EncoderState,
        chunk_size: int,
        ahead: int,
        tables: PositionTables,
    ) -> tuple[list[Tensor], Tensor, EncoderState]:
        """`forward` with R and the tables given, and the output (B, E, D) of every layer."""
        frames = self.num_frames(feats.size(1))  # E, with those that are only seen
        feats, real = self.normalize(feats, lengths, state.position, chunk_size, ahead)
        x, new_feats, hidden = self.subsampled(feats, real, state, ahead)  # (B, n·C + R, D)
        total = x.size(1) - ahead  # n·C
        lengths = self.num_valid(lengths)
        valid = valid_keys(state.position, lengths, state.keys.size(3), chunk_size, total, ahead)
        vectors = self.position.vectors(x, state.position, tables.frames)
        vectors = blocks_of(vectors, chunk_size, ahead)
        x = self.dropout(self.position(x, state.position, tables.frames))
        x = blocks_of(x, chunk_size, ahead)  # (B, n·(C+R), D)
        outputs: list[Tensor] = []
        keys: list[Tensor] = []
        values: list[Tensor] = []
        convs: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            x, layer_keys, layer_values, conv = layer(
                x,
                valid,
                tables.layers[i],
                vectors,
                state.keys[:, i],
                state.values[:, i],
                state.conv[:, i],
                ahead,
            )
            outputs.append(own_frames(x, valid.size(2), ahead)[:, :frames])
            keys.append(layer_keys)
            values.append(layer_values)
            convs.append(conv)
        outputs[-1] = self.after_norm(outputs[-1])
        new_state = EncoderState(
            feats=new_feats,
            hidden=hidden,
            keys=torch.stack(keys, dim=1),
            values=torch.stack(values, dim=1),
            conv=torch.stack(convs, dim=1),
            position=state.position + total,
        )
        return outputs, lengths.clamp(max=total), new_state

    def subsampled(
        self, feats: Tensor, real: Tensor, state: EncoderState, ahead: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(B, factor·(n·C + R) + lookahead, F) -> (B, n·C + R, D), and the past after n·C."""
        if ahead == 0:
            return self.subsampling(feats, real, state.feats, state.hidden)
        size = feats.size(1) - ahead * self.factor
        own, past, hidden = self.subsampling(
            feats[:, :size], real[:, :size], state.feats, state.hidden
        )
        first = size - self.lookahead
        seen, _, _ = self.subsampling(feats[:, first:], real[:, first:], past, hidden)
        return torch.cat([own, seen], dim=1), past, hidden

    def normalize(
        self, feats: Tensor, lengths: Tensor, position: Tensor, chunk_size: int, ahead: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Normalised features of whole chunks and what they see ahead, (B, T, F) with
        T = factor·(n·C + R) + lookahead, zero outside the samples; and which of them are of
        samples, (B, T).

        What makes no frame is cut off.
        """
        numbers = torch.arange(feats.size(1), device=feats.device)
        real = numbers < lengths[:, None]  # (B, T)
        if self.lead_frames > 0:
            real = real & (numbers + self.factor * position[:, None] >= self.lead_frames)
        feats = ((feats - self.mean) * self.scale).masked_fill(~real.unsqueeze(2), 0.0)
        frames = max(1, self.num_frames(feats.size(1)) - ahead)
        frames = self.factor * (frames + -frames % chunk_size + ahead) + self.lookahead
        padding = frames - feats.size(1)
        return functional.pad(feats, (0, 0, 0, padding)), functional.pad(real, (0, padding))
