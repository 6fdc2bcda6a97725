"""The CTC recogniser: encoder and head, its loss, and its streaming step."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.model.conformer import ConformerEncoder, EncoderState, EncoderStep, block_size

BLANK = 0


class CTCOutput(NamedTuple):
    log_probs: Tensor  # (B, E, V)
    lengths: Tensor  # (B,) int64, valid frames of this step
    state: EncoderState


class ConformerCTC(nn.Module):
    """An encoder with a linear CTC head (Graves et al. 2006): log mels to log-probabilities."""

    def __init__(self, encoder: ConformerEncoder, vocab_size: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.dim, vocab_size)

    def init_state(self, batch_size: int, left_context: int) -> EncoderState:
        return self.encoder.init_state(batch_size, left_context)

    def forward(
        self, feats: Tensor, lengths: Tensor, state: EncoderState, chunk_size: int
    ) -> CTCOutput:
        """As the encoder's forward, with (B, E, V) log-probabilities."""
        encoded, lengths, state = self.encoder(feats, lengths, state, chunk_size)
        return CTCOutput(self.log_probs(encoded), lengths, state)

    def log_probs(self, encoded: Tensor) -> Tensor:
        """(B, E, D) -> (B, E, V)."""
        return self.head(encoded).log_softmax(dim=2)


class CTCStep(nn.Module):
    """`EncoderStep` with the head: features to log-probabilities."""

    def __init__(self, model: ConformerCTC, chunk_size: int, left_context: int) -> None:
        super().__init__()
        self.encoder = EncoderStep(model.encoder, chunk_size, left_context)
        self.head = model.head

    @torch.jit.export
    def init_state(self, batch_size: int) -> EncoderState:
        return self.encoder.init_state(batch_size)

    def forward(self, feats: Tensor, lengths: Tensor, state: EncoderState) -> CTCOutput:
        """(B, T, F), (B,) and the past -> CTCOutput."""
        encoded, lengths, state = self.encoder(feats, lengths, state)
        return CTCOutput(self.head(encoded).log_softmax(dim=2), lengths, state)


class CTCLoss(nn.Module):
    """Training loss of each utterance: CTC at the end and at some layers on the way.

    Args:
        model: the recogniser.
        intermediate_layers: layers (counted from 1) whose output goes through the same head
            (Lee and Watanabe 2021).
        intermediate_weight: share of their mean in the loss; the rest is the last layer's.
    """

    def __init__(
        self, model: ConformerCTC, intermediate_layers: list[int], intermediate_weight: float
    ) -> None:
        super().__init__()
        self.model = model
        self.intermediate_layers = intermediate_layers
        self.intermediate_weight = intermediate_weight if intermediate_layers else 0.0

    def forward(
        self,
        feats: Tensor,
        lengths: Tensor,
        tokens: Tensor,
        token_lengths: Tensor,
        chunk_size: int,
        left_context: int,
    ) -> Tensor:
        """(B, T, F), (B,), (B, U), (B,) -> (B,) losses in nats."""
        encoder = self.model.encoder
        state = encoder.init_state(feats.size(0), left_context)
        chunk_size = block_size(chunk_size, feats.size(1))
        tables = encoder.tables(left_context, chunk_size)
        layers, lengths, _ = encoder.step(feats, lengths, state, chunk_size, tables)

        def loss(encoded: Tensor) -> Tensor:
            log_probs = self.model.log_probs(encoded).float().transpose(0, 1)  # (E, B, V)
            return functional.ctc_loss(
                log_probs, tokens, lengths, token_lengths, blank=BLANK, reduction="none"
            )

        total = (1.0 - self.intermediate_weight) * loss(layers[-1])
        for layer in self.intermediate_layers:
            share = self.intermediate_weight / len(self.intermediate_layers)
            total = total + share * loss(layers[layer - 1])
        return total
