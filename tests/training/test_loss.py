"""The training loss; two views of an utterance: their disagreement, its gradient, the contexts."""

import itertools
import random

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from asrkit.config.context import ContextConfig
from asrkit.model import FULL, FULL_CONTEXT, ConformerEncoder, Context, CTCHead, Network
from asrkit.model.positions import KINDS
from asrkit.training.loss import Loss, View, disagreement, draw_contexts, to_few_lengths
from tests.conftest import tiny_model


def log_probs(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 5, 4, dtype=torch.float64, generator=generator).log_softmax(dim=2)


def test_disagreement_is_the_symmetric_divergence_of_valid_frames() -> None:
    first, second, lengths = log_probs(0), log_probs(1), [5, 3]
    found = disagreement(first, second, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        a, b = (Categorical(logits=x[row, :length]) for x in (first, second))
        expected = 0.5 * (kl_divergence(a, b) + kl_divergence(b, a)).sum()
        assert found[row].item() == pytest.approx(expected.item(), abs=1e-12)
    # Control: the padding of the shorter row would have counted.
    assert (disagreement(first, second, torch.tensor([5, 5]))[1] - found[1]).abs() > 1e-3


def test_each_view_learns_from_the_other_held_fixed() -> None:
    logits = [torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    first, second = (x.log_softmax(dim=2) for x in logits)
    disagreement(first, second, torch.tensor([3])).sum().backward()
    # The gradient of KL(teacher || student) by the student's logits is student - teacher.
    expected = 0.5 * (first.exp() - second.exp())
    assert logits[0].grad is not None
    assert (logits[0].grad - expected).abs().max() < 1e-12


def test_loss_of_two_views_is_their_mean_and_their_disagreement() -> None:
    model = tiny_model()
    feats, lengths = torch.randn(2, 80, 80, dtype=torch.float64), torch.tensor([80, 60])
    targets = (torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1]))
    views = [View(feats, FULL), View(0.5 * feats, Context(4, 8))]
    loss = Loss(model, [1], 0.3)
    alone = [loss([view], lengths, *targets) for view in views]
    outputs = [loss.of_view(view, lengths, *targets)[1] for view in views]
    expected = (alone[0] + alone[1]) / 2 + 0.2 * disagreement(*outputs, (lengths + 3) // 4)
    assert (loss(views, lengths, *targets, 0.2) - expected).abs().max() < 1e-4
    assert (loss(views, lengths, *targets, 0.0) - expected).abs().min() > 1e-3


def test_contexts_of_views() -> None:
    sets = {"chunk_sizes": [4, 16], "left_contexts": [0, 64], "right_contexts": [0, 3]}
    config = ContextConfig(**sets, full_share=0.5)
    full, draw = (FULL_CONTEXT, 0, 0), random.Random(0)
    chunked = {*itertools.product(*sets.values())}
    drawn = [draw_contexts(config, "one", draw) for _ in range(400)]
    assert {len(views) for views in drawn} == {1}
    assert {views[0] for views in drawn} == chunked | {full}
    assert 150 < sum(views[0] == full for views in drawn) < 250
    for _ in range(50):
        first, second = draw_contexts(config, "same", draw)
        assert first == second
    drawn = [draw_contexts(config, "full_and_chunks", draw) for _ in range(200)]
    assert {views[0] for views in drawn} == {full}
    assert {views[1] for views in drawn} == chunked


def test_few_lengths() -> None:
    lengths = [to_few_lengths(torch.zeros(1, T, 1)).size(1) for T in range(1, 2049)]
    assert lengths[:17] == [*range(1, 17), 18]
    assert sorted(set(lengths[1024:])) == [*range(1152, 2049, 128)]
    assert all(T <= length <= 1.125 * T for T, length in enumerate(lengths, 1))


def test_zeros_after_the_features_change_no_loss() -> None:
    """In chunks and in full context, of rows of several lengths; control: frames that count do."""
    torch.manual_seed(0)
    loss = Loss(tiny_model().double(), [1], 0.3)
    feats, lengths = torch.randn(2, 145, 80, dtype=torch.float64), torch.tensor([145, 90])
    padded = to_few_lengths(feats)
    assert padded.shape == (2, 160, 80)
    assert torch.equal(padded[:, :145], feats)
    assert not padded[:, 145:].any()
    tokens, token_lengths = torch.ones(2, 3, dtype=torch.long), torch.tensor([3, 2])
    for context in (FULL, Context(4, 8), Context(4, 8, 2)):
        before, after, longer = (
            loss([View(each, context)], counted, tokens, token_lengths)
            for each, counted in ((feats, lengths), (padded, lengths), (padded, lengths + 12))
        )
        assert (after - before).abs().max() < 1e-9
        assert (longer - before).abs().min() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_context_before_the_first_frame_changes_nothing(kind: str) -> None:
    """No key is made for frames before the utterance, however long the left context."""
    torch.manual_seed(0)
    encoder = ConformerEncoder(20, 16, 2, 2, 32, 5, position=kind)
    loss = Loss(Network(encoder, CTCHead(encoder.dim, 9)), [1], 0.3).double()
    widths: list[int] = []  # of the keys that the first layer gets
    encoder.layers[0].register_forward_pre_hook(
        lambda _, inputs: widths.append(inputs[1].valid.size(4))
    )
    feats, tokens = torch.randn(2, 83, 20).double(), torch.randint(1, 9, (2, 3))

    def of(left_context: int) -> Tensor:
        view = View(feats, Context(4, left_context))
        return loss([view], torch.tensor([83, 60]), tokens, torch.tensor([3, 2]))

    last_chunk_starts = 20  # of 21 encoder frames
    expected = of(last_chunk_starts)
    for left_context in (21, 24, 500):
        assert (of(left_context) - expected).abs().max() < 1e-9
    assert widths == [widths[0]] * 4
    assert (of(last_chunk_starts - 4) - expected).abs().max() > 1e-6
