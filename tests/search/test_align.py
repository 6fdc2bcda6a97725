"""Forced alignment against all paths, and delays on cases worked out by hand."""

import itertools

import pytest
import torch

from asrkit.evaluation.delays import Delay, agreeing, delays, summarize
from asrkit.search.align import align
from asrkit.search.hypothesis import Hypothesis


def collapsed(path: tuple[int, ...]) -> list[int]:
    return [token for token, _ in itertools.groupby(path) if token]


@pytest.mark.parametrize("tokens", [[1], [1, 2], [1, 1], [2, 1, 2], [1, 2, 2]])
def test_the_likeliest_of_all_paths(tokens: list[int]) -> None:
    log_probs = torch.randn(6, 3, generator=torch.Generator().manual_seed(len(tokens)))
    log_probs = log_probs.log_softmax(1)
    best = max(
        (path for path in itertools.product(range(3), repeat=6) if collapsed(path) == tokens),
        key=lambda path: sum(float(log_probs[t, token]) for t, token in enumerate(path)),
    )
    runs, frame = [], 0
    for token, run in itertools.groupby(best):
        length = len(list(run))
        if token:
            runs.append((token, frame, frame + length))
        frame += length
    found = align(log_probs, tokens)
    assert found is not None
    assert list(zip(found.tokens, found.starts, found.ends, strict=True)) == runs
    assert all(0 < score <= 1 for score in found.confidences)


def test_too_many_tokens_and_none() -> None:
    log_probs = torch.randn(3, 4).log_softmax(1)
    assert align(log_probs, [1, 1]) is not None
    assert align(log_probs, [1, 1, 2]) is None
    assert align(log_probs * torch.nan, [1, 2]) is None  # torchaudio would read past its arrays
    assert align(log_probs, []) == Hypothesis((), (), (), ())


def test_delays() -> None:
    """Chunks of 4; "a" ends at 2 and starts at 1, "c" ends at 9 and comes at 10, in a last chunk
    that ends at 11; "b" was heard as something else."""
    reference = Hypothesis((1, 2, 3), (0, 4, 8), (2, 5, 9), (1.0,) * 3)
    hypothesis = Hypothesis((1, 7, 3), (1, 5, 10), (2, 6, 11), (1.0,) * 3)
    assert delays(reference, hypothesis, 4, 11) == ([4 - 2, 11 - 9], [2])
    assert delays(reference, hypothesis, 1, 11) == ([2 - 2, 11 - 9], [2])
    assert delays(reference, hypothesis, 1 << 30, 11) == ([11 - 2, 11 - 9], [2])


def test_a_last_token_that_was_not_heard_has_no_delay() -> None:
    reference = Hypothesis((1, 2), (0, 4), (1, 5), (1.0,) * 2)
    hypothesis = Hypothesis((1,), (0,), (1,), (1.0,))
    assert delays(reference, hypothesis, 4, 8) == ([3], [])


def test_agreeing() -> None:
    assert agreeing((1, 2, 3, 4), (1, 3, 4)) == [(0, 0), (2, 1), (3, 2)]
    assert agreeing((1, 2), ()) == []
    assert agreeing((5,), (6,)) == []


def test_summary() -> None:
    assert summarize([1, 2, 3, 10], [4, 6], 40) == Delay(160.0, 100.0, pytest.approx(316.0), 200.0)
    assert summarize([1], [], 40) == Delay(40.0, 40.0, 40.0, None)
    assert summarize([], [], 40) is None
