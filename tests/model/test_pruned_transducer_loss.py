"""The pruned transducer loss: exact where nothing is pruned, and below by what is left out."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from asrkit.model.pruned_transducer_loss import kept_places, pruned_arcs, simple_arcs
from asrkit.model.transducer import TransducerHead
from asrkit.model.transducer_loss import lattice_loss, transducer_loss

FRAMES, TOKENS = torch.tensor([4, 9, 3, 5, 2]), torch.tensor([3, 2, 7, 0, 7])
SIZES = FRAMES, TOKENS


def drawn(spread: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """A simple joiner's logits (5, 9, 6) and (5, 8, 6), and tokens."""
    draw = torch.Generator().manual_seed(0)
    frames = spread * torch.randn(5, 9, 6, generator=draw, dtype=torch.float64)
    labels = spread * torch.randn(5, 8, 6, generator=draw, dtype=torch.float64)
    return frames, labels, torch.randint(1, 6, (5, 7), generator=draw)


def logits_at(places: Tensor) -> Tensor:
    """A real joiner's logits (5, 9, S, 6) of these places."""
    draw = torch.Generator().manual_seed(1)
    table = torch.randn(5, 9, 8, 6, generator=draw, dtype=torch.float64)
    return table.gather(2, places[..., None].expand(-1, -1, -1, 6))


def test_a_simple_joiner_equals_the_loss_of_its_whole_table() -> None:
    frames, labels, tokens = (each.requires_grad_() if each.is_floating_point() else each
                              for each in drawn(3.0))  # fmt: skip
    whole = transducer_loss(frames[:, :, None] + labels[:, None], tokens, *SIZES)
    simple = lattice_loss(*simple_arcs(frames, labels, tokens), *SIZES)
    assert (simple - whole).abs().max() < 1e-12
    gradients = [torch.autograd.grad(each.sum(), (frames, labels)) for each in (whole, simple)]
    for own, other in zip(*gradients, strict=True):
        assert (own - other).abs().max() < 1e-12


def test_all_places_give_the_whole_loss() -> None:
    arcs = simple_arcs(*drawn())
    tokens = drawn()[2]
    places = kept_places(arcs, *SIZES, 8)
    assert torch.equal(places, torch.arange(8).expand(5, 9, 8))
    logits = logits_at(places)
    pruned = lattice_loss(*pruned_arcs(logits, tokens, places), *SIZES)
    assert (pruned - transducer_loss(logits, tokens, *SIZES)).abs().max() < 1e-12


@pytest.mark.parametrize("size", [2, 3, 5])
def test_fewer_places_give_the_loss_of_a_table_without_the_others(size: int) -> None:
    """Which is the loop over the definition with a probability of 0 there, and is larger."""
    arcs, tokens = simple_arcs(*drawn(2.0)), drawn()[2]
    places = kept_places(arcs, *SIZES, size)
    pruned = lattice_loss(*pruned_arcs(logits_at(places), tokens, places), *SIZES)
    table = logits_at(torch.arange(8).expand(5, 9, 8)).log_softmax(dim=3)
    kept = torch.zeros(5, 9, 8, dtype=torch.bool).scatter(2, places, True)
    for i, (frames, count) in enumerate(zip(FRAMES.tolist(), TOKENS.tolist(), strict=True)):
        forward = {(0, 0): 1.0}
        for t, u in itertools.product(range(frames), range(count + 1)):
            if (t, u) != (0, 0):
                before = ((t - 1, u, 0), (t, u - 1, int(tokens[i, u - 1]) if u else 0))
                forward[t, u] = sum(
                    forward.get((s, v), 0.0) * math.exp(table[i, s, v, label])
                    for s, v, label in before if s >= 0 and v >= 0
                )  # fmt: skip
            forward[t, u] *= bool(kept[i, t, u])
        total = forward[frames - 1, count] * math.exp(table[i, frames - 1, count, 0])
        assert abs(float(pruned[i]) + math.log(total)) < 1e-9
    whole = transducer_loss(table, tokens, *SIZES)
    assert (pruned >= whole - 1e-12).all()
    assert (pruned - whole).max() > 0.01  # the control: something was left out


@pytest.mark.parametrize("size", [2, 3, 4, 7, 20])
@pytest.mark.parametrize("spread", [0.1, 5.0, 30.0])
def test_every_row_keeps_a_way_to_its_end(size: int, spread: float) -> None:
    places = kept_places(simple_arcs(*drawn(spread)), *SIZES, size)
    assert places.size(2) == min(8, max(size, 5))  # 7 tokens in 2 frames
    for row, frames, count in zip(places, FRAMES.tolist(), TOKENS.tolist(), strict=True):
        first, steps = row[:frames, 0], row[:frames, 0].diff()
        assert first[0] == 0
        assert ((steps >= 0) & (steps < row.size(1))).all()
        assert first[-1] <= count < first[-1] + row.size(1)
    arcs = pruned_arcs(logits_at(places), drawn()[2], places)
    assert lattice_loss(*arcs, *SIZES).isfinite().all()


def test_kept_places_hold_most_of_the_simple_alignments() -> None:
    """Beside places that are chosen for another row."""
    arcs, tokens = simple_arcs(*drawn(6.0)), drawn()[2]
    rows = slice(0, 2)
    sizes = FRAMES[rows], TOKENS[rows]
    arcs = arcs[0][rows, :, :4], arcs[1][rows, :, :3]
    whole = lattice_loss(*arcs, *sizes)
    found = []
    for places in (kept_places(arcs, *sizes, 2), kept_places(arcs, *sizes, 2).flip(0)):
        kept = torch.zeros(2, 9, 4, dtype=torch.bool).scatter(2, places, True)
        pruned = [a.masked_fill(~kept[..., : a.size(2)], -torch.inf) for a in arcs]
        found.append((lattice_loss(*pruned, *sizes) - whole).sum())
    own, other = found
    assert own < 0.5 * other
    assert len(tokens) == 5


def test_gradient_equals_differences() -> None:
    frames, labels, tokens = drawn()
    places = kept_places(simple_arcs(frames, labels, tokens), *SIZES, 5)
    logits = logits_at(places).requires_grad_()

    def loss(given: Tensor) -> Tensor:
        return lattice_loss(*pruned_arcs(given, tokens, places), *SIZES, 0.0, 0.1)

    assert torch.autograd.gradcheck(loss, (logits,), fast_mode=True)


def test_the_delay_penalty_moves_labels_to_earlier_frames() -> None:
    """Its loss is that of a table whose labels' probabilities are changed as stated."""
    logits = logits_at(torch.arange(8).expand(5, 9, 8)).log_softmax(dim=3)
    tokens = drawn()[2]
    blank = logits[..., 0]
    label = logits[:, :, :-1].gather(3, tokens[:, None, :, None].expand(-1, 9, -1, 1))[..., 0]
    middle = (FRAMES[:, None, None] - 1) / 2
    changed = label + 0.3 * (middle - torch.arange(9.0)[:, None])
    penalized = transducer_loss(logits, tokens, *SIZES, 0.0, 0.3)
    assert (penalized - lattice_loss(blank, changed, *SIZES)).abs().max() < 1e-12
    assert (penalized - transducer_loss(logits, tokens, *SIZES)).abs().max() > 0.1


@pytest.mark.parametrize("size", [None, 3])
def test_a_head_trains(size: int | None) -> None:
    torch.manual_seed(0)
    head = TransducerHead(8, 6, predictor_dim=8, ctc_weight=0.0, prune_range=size, dropout=0.0)
    frames, tokens = torch.randn(5, 9, 8), drawn()[2]
    optimizer = torch.optim.Adam(head.parameters(), 0.02)
    losses = []
    for _ in range(60):
        loss = head.loss(frames, *SIZES[:1], tokens, SIZES[1])[:4].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.4 * losses[0]
    assert all(each.grad is not None for each in head.parameters())


@pytest.mark.parametrize(
    "wrong", [{"prune_range": 1}, {"prune_range": -1}, {"delay_penalty": -1.0}]
)
def test_impossible_options_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TransducerHead(8, 6, **wrong)  # type: ignore[arg-type]
