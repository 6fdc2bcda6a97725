"""The CTC recogniser: encoder and head, its loss, and its streaming step."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.model.conformer import ConformerEncoder, EncoderState
from asrkit.model.context import FULL_CONTEXT, Context, fitted, num_frames, num_valid
from asrkit.model.step import EncoderStep

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
        self,
        feats: Tensor,
        lengths: Tensor,
        state: EncoderState,
        chunk_size: int,
        right_context: int = 0,
    ) -> CTCOutput:
        """As the encoder's forward, with (B, E, V) log-probabilities."""
        encoded, lengths, state = self.encoder(feats, lengths, state, chunk_size, right_context)
        return CTCOutput(self.log_probs(encoded), lengths, state)

    def log_probs(self, encoded: Tensor) -> Tensor:
        """(B, E, D) -> (B, E, V)."""
        return self.head(encoded).log_softmax(dim=2)


class CTCStep(nn.Module):
    """`EncoderStep` with the head: features to log-probabilities."""

    def __init__(self, model: ConformerCTC, context: Context) -> None:
        super().__init__()
        self.encoder = EncoderStep(model.encoder, context)
        self.head = model.head

    @torch.jit.export
    def init_state(self, batch_size: int) -> EncoderState:
        return self.encoder.init_state(batch_size)

    def forward(self, feats: Tensor, lengths: Tensor, state: EncoderState) -> CTCOutput:
        """(B, T, F), (B,) and the past -> CTCOutput."""
        encoded, lengths, state = self.encoder(feats, lengths, state)
        return CTCOutput(self.head(encoded).log_softmax(dim=2), lengths, state)


class FullContextStep(nn.Module):
    """As `CTCStep` in full context: a step is a whole recording, so no table can be kept."""

    def __init__(self, model: ConformerCTC) -> None:
        super().__init__()
        self.model = model

    def init_state(self, batch_size: int) -> EncoderState:
        return self.model.init_state(batch_size, 0)

    def forward(self, feats: Tensor, lengths: Tensor, state: EncoderState) -> CTCOutput:
        """(B, T, F), (B,) and the initial state -> CTCOutput."""
        return self.model(feats, lengths, state, FULL_CONTEXT)


class View(NamedTuple):
    """One look at the utterances of a batch: masked in its own way, in its own context."""

    feats: Tensor  # (B, T, F)
    context: Context


class CTCLoss(nn.Module):
    """Training loss of each utterance: CTC at the end and at some layers on the way.

    Two views of the same utterances are also made to agree, frame by frame (CR-CTC, Yao et al.
    2024).

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
        self.intermediate_layers = sorted(intermediate_layers)
        self.intermediate_weight = intermediate_weight if intermediate_layers else 0.0

    def forward(
        self,
        views: list[View],
        lengths: Tensor,
        tokens: Tensor,
        token_lengths: Tensor,
        consistency_weight: float = 0.0,
    ) -> Tensor:
        """One or two views, (B,) feature frames, (B, U), (B,) -> (B,) losses in nats.

        The views' mean, and `consistency_weight` times their disagreement. Lengths are best on the
        CPU, where torch's CTC loss reads them: elsewhere it waits for them.
        """
        losses, outputs = [], []
        for view in views:
            loss, log_probs = self.of_view(view, lengths, tokens, token_lengths)
            losses.append(loss)
            outputs.append(log_probs)
        total = torch.stack(losses).mean(dim=0)
        if len(views) > 1:
            first, second = outputs
            frames = num_valid(lengths, self.model.encoder.rate)
            frames = frames.to(total.device, non_blocking=True)
            total = total + consistency_weight * disagreement(first, second, frames)
        return total

    def of_view(
        self, view: View, lengths: Tensor, tokens: Tensor, token_lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(B,) losses, and the last layer's log-probabilities (B, E, V)."""
        encoder = self.model.encoder
        frames = num_frames(view.feats.size(1), encoder.rate)
        chunk_size, left, right = fitted(view.context, frames)
        # The frames after the last chunk are zeros.
        feats = functional.pad(view.feats, (0, 0, 0, right * encoder.rate.factor))
        # No frame of the last chunk has more frames before it: more keys would all be invalid.
        left = min(left, max(0, frames - 1) // chunk_size * chunk_size)
        state = encoder.init_state(view.feats.size(0), left)
        on_device = lengths.to(feats.device, non_blocking=True)
        run = encoder.run(
            feats, on_device, state, Context(chunk_size, left, right),
            layers=self.intermediate_layers,
        )  # fmt: skip
        lengths = num_valid(lengths, encoder.rate)

        def loss(log_probs: Tensor) -> Tensor:
            return functional.ctc_loss(
                log_probs.transpose(0, 1), tokens, lengths, token_lengths, BLANK, reduction="none"
            )

        last = self.model.log_probs(run.encoded[:, :frames]).float()
        total = (1.0 - self.intermediate_weight) * loss(last)
        for encoded in run.layers:
            share = self.intermediate_weight / len(run.layers)
            total = total + share * loss(self.model.log_probs(encoded[:, :frames]).float())
        return total, last


def disagreement(first: Tensor, second: Tensor, lengths: Tensor) -> Tensor:
    """Symmetric Kullback-Leibler divergence summed over an utterance's frames.

    Each view learns from the other, which is held fixed (Yao et al. 2024, equation 4).

    Args:
        first: (B, E, V) log-probabilities.
        second: likewise.
        lengths: (B,) valid frames.

    Returns:
        (B,) in nats.
    """
    frames = torch.arange(first.size(1), device=first.device)
    valid = frames < lengths[:, None]  # (B, E)

    def learn(student: Tensor, teacher: Tensor) -> Tensor:
        divergence = functional.kl_div(student, teacher, reduction="none", log_target=True)
        return divergence.sum(dim=2)  # (B, E)

    both = learn(first, second.detach()) + learn(second, first.detach())
    return 0.5 * both.masked_fill(~valid, 0.0).sum(dim=1)
