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

NEVER = -1e30  # finite: the gradient of a sum of infinite numbers is NaN
HAS_TORCHAUDIO = find_spec("torchaudio") is not None
MOST_LOGITS = 2**31 - 1  # torchaudio counts them in 32 bits, and reads other memory beyond


def transducer_loss(
    logits: Tensor, tokens: Tensor, lengths: Tensor, token_lengths: Tensor
) -> Tensor:
    """Return the negative log-likelihood of each row's tokens, summed over all alignments.

    Values beyond a row's lengths have no influence and no gradient, NaN included.

    Args:
        logits: (B, T, U + 1, V), before the softmax; label 0 is the blank.
        tokens: (B, U).
        lengths: (B,) valid frames.
        token_lengths: (B,) valid tokens.

    Returns:
        (B,) in nats; infinite for tokens without a frame.
    """
    if logits.is_cuda and HAS_TORCHAUDIO and suits(logits, lengths, token_lengths):
        return by_torchaudio(logits, tokens, lengths, token_lengths)
    return _TransducerLoss.apply(logits, tokens, lengths, token_lengths)


def suits(logits: Tensor, lengths: Tensor, token_lengths: Tensor) -> bool:
    """Return whether torchaudio's kernels for GPUs compute the same loss.

    They write no loss of a row with one frame or without a token.
    """
    plain = logits.dtype == torch.float32 and logits.numel() <= MOST_LOGITS
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
    return rnnt_loss(logits, *integers, blank=0, reduction="none")


class _TransducerLoss(torch.autograd.Function):
    """The loss whose gradient, by an arc's log-probability, is minus the arc's occupation."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, tokens: Tensor, lengths: Tensor, token_lengths: Tensor
    ) -> Tensor:
        labels = pad(tokens, (0, 1))[:, None, :, None].expand(-1, logits.size(1), -1, 1)
        total = logits.logsumexp(dim=3)  # (B, T, U + 1)
        blank, label = logits[..., 0] - total, logits.gather(3, labels)[..., 0] - total
        log_prob, *occupied = occupations(blank, label[..., :-1], lengths, token_lengths)
        ctx.save_for_backward(logits, total, labels, *(each.to(total.dtype) for each in occupied))
        return -log_prob.to(total.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, weight: Tensor) -> tuple[Tensor | None, ...]:
        logits, total, labels, on_blank, on_label = ctx.saved_tensors  # type: ignore[attr-defined]
        weight = -weight[:, None, None]
        on_blank = on_blank * weight
        on_label = pad(on_label * weight, (0, 1))
        either = on_blank + on_label
        gradient = (logits - total[..., None]).exp_().mul_(-either[..., None])
        # A cell that no path reaches may hold NaN, which 0 times NaN would keep.
        gradient = gradient.masked_fill_((either == 0.0)[..., None], 0.0)
        gradient[..., 0] += on_blank
        return gradient.scatter_add_(3, labels, on_label[..., None]), None, None, None


def occupations(
    blank: Tensor, label: Tensor, lengths: Tensor, token_lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log-likelihood (B,), and the probability that an alignment takes each arc.

    The probabilities are in float64, 0 beyond a row. They are the gradient of the log-likelihood.

    Args:
        blank: (B, T, U + 1) log-probabilities of the arcs to the next frame.
        label: (B, T, U) log-probabilities of the arcs to the next label.
    """
    # In float32 the sums of a long row lose the digits of the occupations; cells are few.
    arcs = [each.detach().double().requires_grad_() for each in (blank, label)]
    with torch.enable_grad():
        log_prob = likelihoods(arcs[0], arcs[1], lengths, token_lengths)
        on_blank, on_label = torch.autograd.grad(log_prob.sum(), arcs)
    log_prob = log_prob.detach()
    return log_prob.masked_fill(log_prob <= NEVER, -torch.inf), on_blank, on_label


def likelihoods(blank: Tensor, label: Tensor, lengths: Tensor, token_lengths: Tensor) -> Tensor:
    """Return the log-likelihood of each row, NEVER or less without an alignment."""
    lengths, token_lengths = (sizes.to(blank.device) for sizes in (lengths, token_lengths))
    frame = torch.arange(blank.size(1), device=blank.device)[:, None]  # (T, 1)
    place = torch.arange(blank.size(2), device=blank.device)
    rows = frame < lengths[:, None, None]  # (B, T, 1)
    blank = skewed(blank.where(rows & (place <= token_lengths[:, None, None]), NEVER))
    label = label.where(rows & (place[:-1] < token_lengths[:, None, None]), NEVER)
    label = skewed(pad(label, (0, 1), value=NEVER))
    cells = torch.full_like(blank[:, 0], NEVER).index_fill(1, place[:1], 0.0)  # (B, U + 1)
    diagonals = [cells]
    for to_frame, to_label in zip(blank.unbind(1), label.unbind(1), strict=True):
        cells = torch.logaddexp(cells + to_frame, pad(cells + to_label, (1, -1), value=NEVER))
        diagonals.append(cells)
    # An alignment ends behind its last frame, after its last label.
    row = torch.arange(len(blank), device=blank.device)
    return torch.stack(diagonals, 1)[row, lengths + token_lengths, token_lengths]


def skewed(cells: Tensor) -> Tensor:
    """Return cells (B, T, U + 1) by anti-diagonals: (B, T + U, U + 1), (t, u) at (t + u, u)."""
    _, frames, places = cells.shape
    padded = pad(cells.transpose(1, 2), (0, places), value=NEVER)
    # Row u of length T + U + 1, read as rows of length T + U, begins u places later.
    flat = padded.flatten(1)[:, : places * (frames + places - 1)]
    return flat.unflatten(1, (places, frames + places - 1)).transpose(1, 2)
