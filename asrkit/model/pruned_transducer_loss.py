"""The pruned transducer loss (Kuang et al. 2022): the joiner is computed where alignments pass.

A simple joiner, which adds the logits of a frame to those of the labels so far, needs no table of
frames × labels × vocabulary. Its alignments choose `size` places in each frame, and only there the
real joiner is computed. The simple joiner's own loss trains it.
"""

import torch
from torch import Tensor

from asrkit.model.transducer_loss import NEVER, Arcs, following, occupations


def simple_arcs(frames: Tensor, labels: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return a simple joiner's log-probabilities of all arcs; label 0 is the blank.

    Args:
        frames: (B, T, V) logits of the frames.
        labels: (B, U + 1, V) logits of the labels so far.
        tokens: (B, U).

    Returns:
        (B, T, U + 1) of the arcs to the next frame, (B, T, U) of those to the next label.
    """
    frames = frames - frames.amax(dim=2, keepdim=True).detach()
    labels = labels - labels.amax(dim=2, keepdim=True).detach()
    total = frames.exp() @ labels.exp().transpose(1, 2)  # (B, T, U + 1)
    total = total.clamp_min(torch.finfo(total.dtype).tiny).log()
    blank = frames[:, :, :1] + labels[:, None, :, 0] - total
    of_frames = frames.gather(2, tokens[:, None].expand(-1, frames.size(1), -1))  # (B, T, U)
    of_labels = labels[:, :-1].gather(2, tokens[..., None])[:, None, :, 0]  # (B, 1, U)
    return blank, of_frames + of_labels - total[..., :-1]


@torch.no_grad()
def kept_places(
    arcs: tuple[Tensor, Tensor], lengths: Tensor, token_lengths: Tensor, size: int
) -> Tensor:
    """Return the places that each frame keeps: those that the most alignments pass.

    The first place never falls and rises by less than `size` a frame, so that an alignment fits in.
    The first frame keeps place 0, the last one the end.

    Args:
        arcs: log-probabilities (B, T, U + 1) to the next frame and (B, T, U) to the next label.
        size: number S of places in a frame. More are kept if the tokens need them, at most U + 1.

    Returns:
        (B, T, S) places, in order.
    """
    _, on_blank, on_label = occupations(*arcs, lengths, token_lengths)
    per_frame = -(-token_lengths // lengths.clamp_min(1))  # (B,) tokens a frame, rounded up
    size = min(on_blank.size(2), max(size, int(per_frame.max()) + 1))
    passed = on_blank.clone()
    passed[..., :-1] += on_label
    first = passed.unfold(2, size, 1).sum(dim=3).argmax(dim=2)  # (B, T)
    lengths, token_lengths = (sizes.to(first.device)[:, None] for sizes in (lengths, token_lengths))
    frame = torch.arange(first.size(1), device=first.device)
    end = (token_lengths - size + 1).clamp_min(0)
    first = torch.where(frame < lengths - 1, first.minimum(end), end)
    first = lowered(first)
    steps = (size - 1) * frame
    first = steps - lowered(steps - first).clamp_min(0)
    return first[..., None] + torch.arange(size, device=first.device)


def lowered(values: Tensor) -> Tensor:
    """Return the largest rising sequence below (B, T) values."""
    return values.flip(1).cummin(dim=1).values.flip(1)


def pruned_arcs(logits: Tensor, tokens: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of all arcs, -inf where the joiner was not computed.

    Args:
        logits: (B, T, S, V) of the kept places, before the softmax.
        tokens: (B, U).
        places: (B, T, S).

    Returns:
        (B, T, U + 1) of the arcs to the next frame, (B, T, U) of those to the next label.
    """
    labels = following(tokens, logits.size(1)).gather(2, places)
    never = logits.new_full((*places.shape[:2], tokens.size(1) + 1), NEVER)
    blank, label = (never.scatter(2, places, arc) for arc in Arcs.apply(logits, labels))
    return blank, label[..., :-1]
