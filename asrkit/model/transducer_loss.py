"""The transducer loss (Graves 2012), in plain PyTorch: every device and precision has it.

All cells (t, u) of an anti-diagonal t + u = n depend on the one before it alone, so a batch takes
T + U steps over vectors. One buffer of the logits' size is made in the backward pass, and none in
the forward pass. On a GPU these steps are many small operations, so torchaudio's loss is called
where it computes the same in float32.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn.functional import pad

NEVER = -torch.inf
HAS_TORCHAUDIO = find_spec("torchaudio") is not None
MOST_LOGITS = 2**31 - 1  # torchaudio counts them in 32 bits, and reads other memory beyond


def transducer_loss(
    logits: Tensor, tokens: Tensor, lengths: Tensor, token_lengths: Tensor, fast_emit: float = 0.0
) -> Tensor:
    """Return the negative log-likelihood of each row's tokens, summed over all alignments.

    Values beyond a row's lengths have no influence and no gradient, NaN included.

    Args:
        logits: (B, T, U + 1, V), before the softmax; label 0 is the blank.
        tokens: (B, U).
        lengths: (B,) valid frames.
        token_lengths: (B,) valid tokens.
        fast_emit: lambda of FastEmit (Yu et al. 2020): the gradients of labels are 1 + lambda times
            as large, those of blanks unchanged. The value of the loss does not depend on it.

    Returns:
        (B,) in nats; infinite for tokens without a frame.
    """
    if logits.is_cuda and HAS_TORCHAUDIO and suits(logits, lengths, token_lengths, fast_emit):
        return by_torchaudio(logits, tokens, lengths, token_lengths)
    loss: Tensor = _TransducerLoss.apply(logits, tokens, lengths, token_lengths, fast_emit)
    return loss


def suits(logits: Tensor, lengths: Tensor, token_lengths: Tensor, fast_emit: float) -> bool:
    """Return whether torchaudio's kernels for GPUs compute the same loss.

    They write no loss of a row with one frame or without a token.
    """
    plain = logits.dtype == torch.float32 and logits.numel() <= MOST_LOGITS and not fast_emit
    return plain and int(lengths.min()) > 1 and int(token_lengths.min()) > 0


def by_torchaudio(logits: Tensor, tokens: Tensor, lengths: Tensor, token_lengths: Tensor) -> Tensor:
    """Compute `transducer_loss` by torchaudio: faster on a GPU, and about 1e-4 less exact."""
    from torchaudio.functional import rnnt_loss  # not needed to recognise

    frames, places = int(lengths.max()), int(token_lengths.max())  # it takes no others
    logits = logits[:, :frames, : places + 1].contiguous()
    integers = (
        sizes.to(logits.device, torch.int32).contiguous()
        for sizes in (tokens[:, :places], lengths, token_lengths)
    )
    loss: Tensor = rnnt_loss(logits, *integers, blank=0, reduction="none")
    return loss


class _TransducerLoss(torch.autograd.Function):
    """The loss whose gradient, by an arc's log-probability, is minus the arc's occupation."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, tokens: Tensor, lengths: Tensor, token_lengths: Tensor,
        fast_emit: float,
    ) -> Tensor:  # fmt: skip
        labels = pad(tokens, (0, 1))[:, None, :, None].expand(-1, logits.size(1), -1, 1)
        total = logits.logsumexp(dim=3)  # (B, T, U + 1)
        blank, label = logits[..., 0] - total, logits.gather(3, labels)[..., 0] - total
        log_prob, *occupied = occupations(blank, label[..., :-1], lengths, token_lengths)
        ctx.save_for_backward(logits, total, labels, *(each.to(total.dtype) for each in occupied))
        ctx.fast_emit = fast_emit
        return -log_prob.to(total.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, weight: Tensor) -> tuple[Tensor | None, ...]:
        logits, total, labels, on_blank, on_label = ctx.saved_tensors  # type: ignore[attr-defined]
        weight = -weight[:, None, None]
        on_blank = on_blank * weight
        on_label = pad(on_label * (weight * (1.0 + ctx.fast_emit)), (0, 1))  # type: ignore[attr-defined]
        either = on_blank + on_label
        gradient = (logits - total[..., None]).exp_().mul_(-either[..., None])
        # A cell that no path reaches may hold NaN, which 0 times NaN would keep.
        gradient = gradient.masked_fill_((either == 0.0)[..., None], 0.0)
        gradient[..., 0] += on_blank
        return gradient.scatter_add_(3, labels, on_label[..., None]), None, None, None, None


@torch.no_grad()
def occupations(
    blank: Tensor, label: Tensor, lengths: Tensor, token_lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log-likelihood (B,), and the probability that an alignment takes each arc.

    The probabilities are in float64, 0 beyond a row.

    Args:
        blank: (B, T, U + 1) log-probabilities of the arcs to the next frame.
        label: (B, T, U) log-probabilities of the arcs to the next label.
    """
    lengths, token_lengths = (sizes.to(blank.device) for sizes in (lengths, token_lengths))
    frame = torch.arange(blank.size(1), device=blank.device)[:, None]  # (T, 1)
    place = torch.arange(blank.size(2), device=blank.device)
    rows = frame < lengths[:, None, None]  # (B, T, 1)
    # In float32 the sums of a long row lose the digits of the occupations; cells are few.
    blank = blank.double().where(rows & (place <= token_lengths[:, None, None]), NEVER)
    label = label.double().where(rows & (place[:-1] < token_lengths[:, None, None]), NEVER)
    batch, frames, places = blank.shape
    last = frames + places - 1  # number of the last anti-diagonal, which has only an end
    blank, label = skewed(blank), skewed(pad(label, (0, 1), value=NEVER))
    forward = blank.new_full((batch, last + 1, places), NEVER)
    forward[:, 0, 0] = 0.0
    for n in range(1, last + 1):
        torch.logaddexp(
            forward[:, n - 1] + blank[:, n - 1],
            shifted(forward[:, n - 1] + label[:, n - 1]),
            out=forward[:, n],
        )
    # An alignment ends behind its last frame, after its last label.
    ends = torch.zeros(batch, last + 1, places, dtype=torch.bool, device=blank.device)
    ends[torch.arange(batch, device=blank.device), lengths + token_lengths, token_lengths] = True
    backward = torch.zeros_like(forward).masked_fill_(~ends, NEVER)
    for n in range(last - 1, -1, -1):
        onward = torch.logaddexp(
            backward[:, n + 1] + blank[:, n], shifted(backward[:, n + 1], -1) + label[:, n]
        )
        backward[:, n] = torch.where(ends[:, n], 0.0, onward)
    log_prob = backward[:, 0, 0].clone()
    scale = log_prob.where(log_prob.isfinite(), 0.0)[:, None, None]
    before = forward[:, :-1] - scale
    on_blank = (before + blank + backward[:, 1:]).exp_()
    on_label = (before + label + shifted(backward[:, 1:], -1)).exp_()
    return log_prob, straight(on_blank, frames), straight(on_label, frames)[:, :, :-1]


def shifted(cells: Tensor, by: int = 1) -> Tensor:
    """Return cells (…, U + 1) moved by one place up or down; nothing comes from outside."""
    if by > 0:
        return pad(cells[..., :-1], (1, 0), value=NEVER)
    return pad(cells[..., 1:], (0, 1), value=NEVER)


def skewed(cells: Tensor) -> Tensor:
    """Return cells (B, T, U + 1) by anti-diagonals: (B, T + U, U + 1), (t, u) at (t + u, u)."""
    _, frames, places = cells.shape
    padded = pad(cells.transpose(1, 2), (0, places), value=NEVER)
    # Row u of length T + U + 1, read as rows of length T + U, begins u places later.
    flat = padded.flatten(1)[:, : places * (frames + places - 1)]
    return flat.unflatten(1, (places, frames + places - 1)).transpose(1, 2)


def straight(cells: Tensor, frames: int) -> Tensor:
    """Undo `skewed`: (B, T + U, U + 1) -> (B, T, U + 1)."""
    places = cells.size(2)
    flat = pad(cells.transpose(1, 2).flatten(1), (0, places))
    return flat.unflatten(1, (places, frames + places))[:, :, :frames].transpose(1, 2)
