"""The transducer head: its predictor as a stream, and its loss as it trains."""

from typing import Any

import pytest
import torch
from torch import Tensor

from asrkit.model import TransducerHead, build_head
from asrkit.model.transducer_loss import transducer_loss

PREDICTORS = [
    {"predictor": "lstm", "predictor_layers": 2},
    {"predictor": "stateless", "context": 1},
    {"predictor": "stateless", "context": 3},
]
SIZES = {"predictor_dim": 13, "joint_dim": 11}


def head(**options: Any) -> TransducerHead:
    torch.manual_seed(0)
    built = build_head({"kind": "transducer"} | SIZES | options, 16, 9)
    assert isinstance(built, TransducerHead)
    return built.double().eval()


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Frames (3, 20, 16), lengths, tokens (3, 6), lengths."""
    draw = torch.Generator().manual_seed(0)
    frames = torch.randn(3, 20, 16, generator=draw, dtype=torch.float64)
    tokens = torch.randint(1, 9, (3, 6), generator=draw)
    return frames, torch.tensor([20, 15, 18]), tokens, torch.tensor([6, 0, 4])


@pytest.mark.parametrize("options", PREDICTORS)
def test_predictor_token_by_token_equals_whole_texts(options: dict[str, Any]) -> None:
    """Rows of a batch, one of them with a state that another stream had."""
    predictor, (_, _, tokens, _) = head(**options).predictor, batch()
    whole, last = predictor(tokens, predictor.start(3))
    state, steps = predictor.start(3), []
    for column in tokens.split(1, dim=1):
        output, state = predictor(column, state)
        steps.append(output)
    assert (torch.cat(steps, dim=1) - whole).abs().max() < 1e-12
    assert all(map(torch.allclose, state, last))
    middle = predictor(tokens[:, :3], predictor.start(3))[1]
    alone, _ = predictor(tokens[1:2, 3:], tuple(each[1:2] for each in middle))
    assert (alone - whole[1:2, 3:]).abs().max() < 1e-12


@pytest.mark.parametrize("context", [1, 3])
def test_stateless_predictor_reads_its_context_alone(context: int) -> None:
    predictor, (_, _, tokens, _) = head(predictor="stateless", context=context).predictor, batch()
    whole, _ = predictor(tokens, predictor.start(3))
    other = tokens.clone()
    other[:, 0] = other[:, 0] % 8 + 1
    changed = (predictor(other, predictor.start(3))[0] - whole).abs().amax(dim=(0, 2)) > 0
    assert changed.tolist() == [True] * context + [False] * (6 - context)


@pytest.mark.parametrize("ctc_weight", [0.0, 0.3])
@pytest.mark.parametrize("options", PREDICTORS)
def test_loss_is_that_of_each_row_alone(options: dict[str, Any], ctc_weight: float) -> None:
    own, (frames, lengths, tokens, counts) = head(ctc_weight=ctc_weight, **options), batch()
    together = own.loss(frames, lengths, tokens, counts)
    for i, (size, count) in enumerate(zip(lengths.tolist(), counts.tolist(), strict=True)):
        row = frames[i : i + 1, :size], lengths[i : i + 1], tokens[i : i + 1, :count]
        assert (own.loss(*row, counts[i : i + 1]) - together[i]).abs().max() < 1e-6


def test_loss_is_the_weighted_sum_of_transducer_and_ctc() -> None:
    own, (frames, lengths, tokens, counts) = head(ctc_weight=0.25), batch()
    assert own.ctc is not None
    before = torch.cat([torch.zeros(3, 1, dtype=torch.long), tokens], dim=1)
    predicted = own.from_predictor(own.predictor(before, own.predictor.start(3))[0])
    logits = own.join(own.project(frames)[:, :, None], predicted[:, None])
    transducer = transducer_loss(logits, tokens, lengths, counts)
    ctc = own.ctc.loss(own.ctc.emissions(frames), lengths, tokens, counts)
    total = own.loss(frames, lengths, tokens, counts)
    assert (total - 0.75 * transducer - 0.25 * ctc).abs().max() < 1e-5
    assert (total - transducer).abs().max() > 0.1


def test_every_parameter_learns_but_the_embedding_of_the_blank() -> None:
    own, case = head(dropout=0.1).train(), batch()
    own.loss(*case).sum().backward()
    gradients = {name: p.grad for name, p in own.named_parameters()}
    assert all(each is not None and each.abs().sum() > 0 for each in gradients.values())
    embedding = gradients["predictor.embed.weight"]
    assert embedding is not None
    assert embedding[0].count_nonzero() == 0


def test_frames_needed() -> None:
    tokens = [1, 1, 2]
    assert head(ctc_weight=0.3).frames_needed(tokens) == 4  # with CTC's blank between equals
    assert head(ctc_weight=0.0, max_symbols=2).frames_needed(tokens) == 2
    assert head(ctc_weight=0.0).frames_needed([]) == 1


@pytest.mark.parametrize("options", PREDICTORS)
def test_labels_are_copied_with_all_that_is_theirs(options: dict[str, Any]) -> None:
    """The labels of another order give the same loss."""
    order = [0, 3, 1, 2, 8, 7, 6, 5, 4]
    first, (frames, lengths, tokens, counts) = head(**options), batch()
    torch.manual_seed(1)
    other = build_head({"kind": "transducer"} | SIZES | options, 16, 9).double().eval()
    renamed = torch.tensor(order)[tokens]
    before = other.loss(frames, lengths, renamed, counts)
    other.copy_labels(first, list(range(9)), order)
    loss = first.loss(frames, lengths, tokens, counts)
    assert (other.loss(frames, lengths, renamed, counts) - loss).abs().max() < 1e-6
    assert (before - loss).abs().max() > 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ctc_weight": 1.0}, "ctc_weight must be from 0 to below 1, got 1.0"),
        ({"dropout": -0.1}, "dropout must be from 0 to below 1, got -0.1"),
        ({"predictor": "stateless", "context": 9}, "predictor_dim must be 18 or more, got 13"),
    ],
)
def test_options_out_of_range_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        head(**options)
