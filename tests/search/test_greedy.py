"""Greedy search: the collapse rule, times, and the same result for every split."""

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


def test_greedy_search_does_not_depend_on_the_split() -> None:
    torch.manual_seed(0)
    frames, search = torch.randn(60, 5).log_softmax(1), GreedySearch()
    whole = search.best(search.step(search.start(), frames))
    for sizes in ([60], [1] * 60, [7, 0, 13, 40], [0, 60, 0]):
        state = search.start()
        for part in frames.split(sizes):
            state = search.step(state, part)
        assert search.best(state) == whole


def test_streams_of_a_batch_equal_streams_alone() -> None:
    """At different places, with different numbers of frames, none among them."""
    torch.manual_seed(0)
    for penalty, label in ((0.0, None), (0.5, 4)):
        search = GreedySearch(blank_penalty=penalty)
        search.end_of_turn = label
        parts = [torch.randn(size, 5).log_softmax(1) for size in (20, 0, 9, 1, 15)]
        states = [search.step(search.start(), torch.randn(n, 5)) for n in range(5)]
        together = search.step_all(states, parts)
        assert together == [search.step(*each) for each in zip(states, parts, strict=True)]
        for part, found in zip(parts, together, strict=True):
            likeliest = search.readable(part).argmax(1)
            assert found.quiet == tuple((likeliest == 0).tolist())
        mixed = search.step_all(states[::-1], parts)
        assert together != mixed[::-1]  # control


def test_control_a_lost_past_doubles_a_token() -> None:
    search = GreedySearch()
    state = search.step(search.start(), log_probs([1, 1]))
    forgetful = state._replace(last=0)
    assert search.best(search.step(state, log_probs([1]))).tokens == (1,)
    assert search.best(search.step(forgetful, log_probs([1]))).tokens == (1, 1)
