"""Forced alignment with a transducer against all paths through the lattice."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from asrkit.model import TransducerHead
from asrkit.search import TransducerGreedySearch, forced_alignment
from asrkit.search.forced_alignment import AlignmentError, AlignmentState, TransducerAlignment
from tests.search.test_transducer_greedy import HEADS, frames, head


@torch.inference_mode()
def by_enumeration(own: TransducerHead, encoded: Tensor, tokens: list[int]) -> tuple[int, ...]:
    """The frames of the tokens on the likeliest of all paths."""
    known = torch.tensor([[0, *tokens]])
    outputs = own.from_predictor(own.predictor(known, own.predictor.start(1))[0][0])
    lattice = own.join(own.project(encoded)[:, None], outputs).log_softmax(2)  # (E, U + 1, V)

    def score(path: tuple[int, ...]) -> float:
        labels = sum(float(lattice[t, u, tokens[u]]) for u, t in enumerate(path))
        before = [sum(start <= t for start in path) for t in range(len(encoded))]
        return labels + sum(float(lattice[t, u, 0]) for t, u in enumerate(before))

    every = itertools.combinations_with_replacement(range(len(encoded)), len(tokens))
    return max(every, key=score)


@pytest.mark.parametrize("options", HEADS[::2])
@pytest.mark.parametrize("block", [1, 1 << 22])
def test_alignment_is_the_likeliest_of_all_paths(
    options: dict[str, Any], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forced_alignment, "BLOCK", block)
    own, several, crowded = head(**options), set(), 0
    for seed, tokens in enumerate([[3], [1, 2], [5, 5], [4, 1, 4], [1, 2, 3, 4]]):
        encoded = frames(5, seed)
        found = TransducerAlignment(own, tokens).align(encoded)
        assert found is not None
        assert found.tokens == tuple(tokens)
        assert found.starts == by_enumeration(own, encoded, tokens)
        pairs = zip(found.starts, [*found.starts[1:], -1], strict=True)
        assert found.ends == tuple(a if a == b else a + 1 for a, b in pairs)
        assert all(0.0 < each < 1.0 for each in found.confidences)
        several.add(found.starts)
        crowded += len(set(found.starts)) < len(tokens)
    assert len(several) == 5
    assert crowded > 0  # some frames have two labels


def test_control_a_predictor_that_forgets_is_noticed() -> None:
    own, tokens = head(**HEADS[1]), [4, 1, 4, 2]

    class Forgetful(TransducerHead):
        def outputs(self, tokens: Tensor) -> Tensor:
            alone = [super(Forgetful, self).outputs(each[None, None]) for each in tokens[0]]
            return torch.cat([alone[0][:, :1], *(each[:, 1:] for each in alone)], dim=1)

    right = [TransducerAlignment(own, tokens).align(frames(6, seed)) for seed in range(5)]
    own.__class__ = Forgetful
    assert [TransducerAlignment(own, tokens).align(frames(6, seed)) for seed in range(5)] != right


@pytest.mark.parametrize("options", HEADS)
def test_a_text_at_once_is_the_text_token_by_token(options: dict[str, Any]) -> None:
    own, tokens = head(**options), [4, 1, 4, 2]
    state, alone = own.start(1), []
    for token in [0, *tokens]:
        output, state = own.predict(torch.tensor([token]), state)
        alone.append(output)
    at_once = own.outputs(torch.tensor([tokens]))[0]
    assert (at_once - torch.cat(alone)).abs().max() < 1e-9
    assert (at_once[1:] - own.outputs(torch.tensor([tokens[::-1]]))[0, 1:]).abs().max() > 1e-3


def test_the_split_of_the_frames_changes_no_alignment() -> None:
    own, encoded, tokens = head(**HEADS[1]), frames(40), [4, 1, 4, 2, 9]
    searching = TransducerAlignment(own, tokens)
    state = searching.step(searching.step(searching.start(), encoded[:13]), encoded[13:])
    assert searching.best(state) == TransducerAlignment(own, tokens).align(encoded)
    assert searching.quiet(encoded) == TransducerGreedySearch(own).quiet(encoded)


def test_lattices_that_cannot_be_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    own = head(**HEADS[1])
    assert TransducerAlignment(own, [1]).align(frames(0)) is None
    assert (
        TransducerAlignment(own, [1]).align(torch.full((3, 16), torch.nan, dtype=torch.float64))
        is None
    )
    nothing = TransducerAlignment(own, []).align(frames(0))
    assert nothing is not None
    assert nothing.tokens == ()
    monkeypatch.setattr(forced_alignment, "MOST_CELLS", 11)
    assert TransducerAlignment(own, [1, 2]).align(frames(3)) is not None
    with pytest.raises(AlignmentError, match="got 4 frames and 2 tokens: align shorter"):
        TransducerAlignment(own, [1, 2]).align(frames(4))
    with pytest.raises(AlignmentError, match="1 tokens do not fit into 0 frames"):
        TransducerAlignment(own, [1]).best(AlignmentState())
