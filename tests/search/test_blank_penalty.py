"""A penalty of the blank: the same search on posteriors that have less of it."""

import math

import pytest
import torch
from torch import Tensor

from asrkit.search import GreedySearch, PrefixBeamSearch, Search
from asrkit.search.base import penalize_blank

SEARCHES = [GreedySearch, PrefixBeamSearch]


def posteriors(frames: int = 40, vocabulary: int = 6) -> Tensor:
    """Mostly blanks."""
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(frames, vocabulary, generator=draw, dtype=torch.float64)
    logits[:, 0] += 2.0
    return logits.log_softmax(dim=1)


def tokens(search: Search, log_probs: Tensor, packet: int) -> tuple[int, ...]:
    state = search.start()
    for part in log_probs.split(packet):
        state = search.step(state, part)
    return search.best(state).tokens


def test_penalized_frames_are_distributions() -> None:
    log_probs = posteriors()
    lowered = penalize_blank(log_probs, 0, math.log(4.0))
    assert (lowered.exp().sum(1) - 1.0).abs().max() < 1e-12
    # Every token's odds against the blank are four times what they were.
    odds = (lowered[:, 1:] - lowered[:, :1]) - (log_probs[:, 1:] - log_probs[:, :1])
    assert (odds - math.log(4.0)).abs().max() < 1e-12
    assert penalize_blank(log_probs, 0, 0.0) is log_probs


@pytest.mark.parametrize("kind", SEARCHES)
def test_penalty_equals_a_search_of_lowered_posteriors(kind: type) -> None:
    log_probs = posteriors()
    plain, lowered = kind(), kind(blank_penalty=1.0)
    wanted = tokens(plain, penalize_blank(log_probs, 0, 1.0), 40)
    assert tokens(lowered, log_probs, 40) == wanted
    assert tokens(lowered, log_probs, 3) == wanted  # any packets
    assert len(wanted) > len(tokens(plain, log_probs, 40))  # fewer deletions
    assert len(tokens(kind(blank_penalty=-1.0), log_probs, 40)) < len(wanted)


@pytest.mark.parametrize("kind", SEARCHES)
def test_penalty_that_is_not_finite_is_refused(kind: type) -> None:
    with pytest.raises(ValueError, match="blank_penalty must be a finite number, got nan"):
        kind(blank_penalty=math.nan)
