"""Greedy search: the collapse rule and times."""

import torch

from asrkit.search import GreedySearch


def log_probs(frames: list[int], vocab_size: int = 5) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(frames), vocab_size).mul(0.9).add(0.02).log()


def test_repeats_merge_and_tokens_have_the_times_of_their_frames() -> None:
    search = GreedySearch()
    best = search.best(search.step(search.start(), log_probs([0, 1, 1, 0, 1, 2, 2, 2, 0, 0])))
    assert best.tokens == (1, 1, 2)
    assert best.starts == (1, 4, 5)
    assert best.ends == (3, 5, 8)
    assert all(abs(c - 0.92) < 1e-5 for c in best.confidences)
