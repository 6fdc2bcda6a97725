"""The training loss over one or two views of a batch."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.model import Context, Network
from asrkit.model.context import fitted, num_frames, num_valid


class View(NamedTuple):
    """A version of a batch's utterances, with its own masks and its own context."""

    feats: Tensor  # (B, T, F)
    context: Context
    offset: int = 0  # number of the first frame in a periodic position encoding


class Loss(nn.Module):
    """The head's loss of each utterance, on the last layer and on some layers before it.

    For two views of the same utterances, the loss also penalises their disagreement in each frame.

    Args:
        intermediate_layers: layers (counted from 1) whose output passes through the same head
            (Lee and Watanabe 2021).
        intermediate_weight: weight of the intermediate layers' mean loss; the last layer has the
            rest.
    """

    def __init__(
        self, model: Network, intermediate_layers: list[int], intermediate_weight: float
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
        """Compute losses in nats: 1 or 2 views, (B,) feature frames, (B, U), (B,) -> (B,).

        The loss is the mean of the views' losses, plus `consistency_weight` times the disagreement.
        """
        losses, outputs = [], []
        for view in views:
            loss, frames = self.of_view(view, lengths, tokens, token_lengths)
            losses.append(loss)
            outputs.append(frames)
        total = torch.stack(losses).mean(dim=0)
        if len(views) > 1:
            counts = num_valid(lengths, self.model.encoder.rate)
            counts = counts.to(total.device, non_blocking=True)
            total = total + consistency_weight * self.model.head.disagreement(
                outputs[0], outputs[1], counts
            )
        return total

    def of_view(
        self, view: View, lengths: Tensor, tokens: Tensor, token_lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return (B,) losses, and the head's frames (B, E, V) of the last layer."""
        encoder, head = self.model.encoder, self.model.head
        frames = num_frames(view.feats.size(1), encoder.rate)
        chunk_size, left, right = fitted(view.context, frames)
        # The frames after the last chunk are zeros.
        feats = functional.pad(view.feats, (0, 0, 0, right * encoder.rate.factor))
        # A longer left context than the frames before the last chunk would add only invalid keys.
        left = min(left, max(0, frames - 1) // chunk_size * chunk_size)
        state = encoder.init_state(view.feats.size(0), left)
        on_device = lengths.to(feats.device, non_blocking=True)
        context = Context(chunk_size, left, right)
        run = encoder.run(
            feats, on_device, state, context, layers=self.intermediate_layers, offset=view.offset
        )
        lengths = num_valid(lengths, encoder.rate)
        last = head.frames(run.encoded[:, :frames]).float()
        loss = head.loss(last, lengths, tokens, token_lengths)
        total = (1.0 - self.intermediate_weight) * loss
        for encoded in run.layers:
            share, layer_head = self.intermediate_weight / len(run.layers), head.layer_head()
            of_layer = layer_head.frames(encoded[:, :frames]).float()
            total = total + share * layer_head.loss(of_layer, lengths, tokens, token_lengths)
        return total, last
