"""The transducer loss against a loop over its definition, and against its own differences."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from asrkit.model.transducer_loss import MOST_LOGITS, by_torchaudio, suits, transducer_loss

FRAMES, TOKENS = [4, 7, 1, 3, 5], [3, 2, 2, 0, 5]  # also more labels than frames, and no label


def drawn(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits (5, 7, 6, 4) of rows of all lengths, tokens and both lengths."""
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(5, max(FRAMES), max(TOKENS) + 1, 4, generator=draw, dtype=dtype)
    tokens = torch.randint(1, 4, (5, max(TOKENS)), generator=draw)
    return logits, tokens, torch.tensor(FRAMES), torch.tensor(TOKENS)


def by_definition(logits: Tensor, tokens: list[int], blank: int = 0, shift: int = 0) -> float:
    """Loop over the cells of one row: (T, U + 1, V) -> nats.

    Args:
        logits: of the row.
        tokens: of the row.
        blank: label of the blank.
        shift: number of places by which the label arcs read a later predictor output.
    """
    log_probs = logits.log_softmax(dim=2).tolist()
    frames, places = len(log_probs), len(tokens) + 1
    forward = [[-math.inf] * places for _ in range(frames)]
    forward[0][0] = 0.0
    for t, u in itertools.product(range(frames), range(places)):
        paths = [forward[t][u]]
        if t:
            paths.append(forward[t - 1][u] + log_probs[t - 1][u][blank])
        if u:
            at = min(u - 1 + shift, places - 1)
            paths.append(forward[t][u - 1] + log_probs[t][at][tokens[u - 1]])
        highest = max(paths)
        if highest > -math.inf:
            forward[t][u] = highest + math.log(sum(math.exp(each - highest) for each in paths))
    return -forward[-1][-1] - log_probs[-1][-1][blank]


def loops(case: tuple[Tensor, Tensor, Tensor, Tensor], **options: int) -> Tensor:
    logits, tokens, *_ = case
    rows = zip(logits, tokens, FRAMES, TOKENS, strict=True)
    return torch.tensor(
        [by_definition(row[:t, : u + 1], own[:u].tolist(), **options) for row, own, t, u in rows],
        dtype=torch.float64,
    )


def test_padded_rows_equal_the_double_loop() -> None:
    case = drawn()
    assert (transducer_loss(*case) - loops(case)).abs().max() < 1e-12


@pytest.mark.parametrize("wrong", [{"blank": 1}, {"shift": 1}])
def test_another_blank_or_shifted_labels_are_another_loss(wrong: dict[str, int]) -> None:
    case = drawn()
    assert (transducer_loss(*case) - loops(case, **wrong)).abs().max() > 0.1


def test_gradient_equals_differences() -> None:
    logits, *rest = drawn()
    logits = logits.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda each: transducer_loss(each, *rest), (logits,), fast_mode=True
    )


def test_padding_has_no_influence_and_no_gradient() -> None:
    logits, tokens, lengths, token_lengths = drawn()
    other = torch.full((5, 9, 8, 4), math.nan, dtype=torch.float64)
    for i, (frames, count) in enumerate(zip(FRAMES, TOKENS, strict=True)):
        other[i, :frames, : count + 1] = logits[i, :frames, : count + 1]
    more = torch.nn.functional.pad(tokens, (0, 2), value=3)
    gradients = []
    for case in ((logits, tokens), (other, more)):
        given = case[0].clone().requires_grad_()
        transducer_loss(given, case[1], lengths, token_lengths).sum().backward()
        assert given.grad is not None
        gradients.append(given.grad)
    own, padded = gradients
    assert torch.equal(padded[:, :7, :6], own)
    assert padded[:, 7:].count_nonzero() == padded[:, :, 6:].count_nonzero() == 0
    assert own[0, 4:].count_nonzero() == own[1, :, 3:].count_nonzero() == 0


def test_long_rows_in_float32_are_near_float64() -> None:
    draw = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(2, 200, 41, 20, generator=draw, dtype=torch.float64)
    tokens = torch.randint(1, 20, (2, 40), generator=draw)
    found = []
    for given in (logits.requires_grad_(), logits.detach().float().requires_grad_()):
        loss = transducer_loss(given, tokens, torch.tensor([200, 150]), torch.tensor([40, 30]))
        loss.sum().backward()
        assert given.grad is not None
        found.append((loss.detach(), given.grad))
    (exact, gradient), (single, near) = found
    assert ((single - exact) / exact).abs().max() < 1e-6
    assert (near - gradient).abs().max() < 1e-5  # 2e-4 where cells are summed in float32


def test_tokens_without_a_frame_have_an_infinite_loss_and_no_gradient() -> None:
    logits, tokens, _, token_lengths = drawn()
    logits = logits.requires_grad_()
    loss = transducer_loss(logits, tokens, torch.tensor([0, 7, 1, 3, 5]), token_lengths)
    assert loss.isinf().tolist() == [True] + 4 * [False]
    loss[1:].sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad[0].count_nonzero() == 0


def test_torchaudio_computes_the_same() -> None:
    """The call for a GPU, here on the CPU; the rows are longer than any length, with NaN there."""
    logits, tokens, *sizes = drawn(torch.float32)
    found = []
    for loss_of, labels in (
        (transducer_loss, tokens), (by_torchaudio, tokens), (by_torchaudio, tokens.flip(1))
    ):  # fmt: skip
        given = torch.nn.functional.pad(logits, (0, 0, 0, 2, 0, 3), value=math.nan)
        given.requires_grad_()
        loss = loss_of(given, torch.nn.functional.pad(labels, (0, 2)), *sizes)
        loss.sum().backward()
        assert given.grad is not None
        found.append((loss.detach(), given.grad))
    (own, gradient), (theirs, near), (flipped, _) = found
    assert (own - theirs).abs().max() < 1e-5
    assert (gradient - near).abs().max() < 1e-5
    assert (own - flipped).abs().max() > 0.1


def test_what_torchaudio_computes_on_a_gpu() -> None:
    """Its kernels write nothing for one frame or no token, and count logits in 32 bits."""
    frames, labels = torch.tensor([4, 2]), torch.tensor([3, 1])
    logits = torch.zeros(2, 4, 4, 5)
    assert suits(logits, frames, labels)  # control
    assert not suits(logits, torch.tensor([4, 1]), labels)
    assert not suits(logits, frames, torch.tensor([3, 0]))
    assert not suits(logits.double(), frames, labels)
    large = torch.zeros(1).expand(2, 4, 4, MOST_LOGITS // 32 + 1)  # takes no memory
    assert not suits(large, frames, labels)
