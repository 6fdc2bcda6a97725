"""Prefix beam search against all paths and against the textbook."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest
import torch

import asrkit.search.prefix_beam
from asrkit.search import GreedySearch, Hypothesis, PrefixBeamSearch, Ranked
from asrkit.search.beam import STABLE_FRAMES, in_order

ALL = {"min_token_prob": 0.0, "skip_blank_prob": 1.0}  # nothing but the beam prunes


def random_log_probs(seed: int, num_frames: int, vocab_size: int, scale: float = 1.5) -> np.ndarray:
    """(E, V) float64, peaky for a large scale."""
    draw = torch.Generator().manual_seed(seed)
    frames = torch.randn(num_frames, vocab_size, generator=draw, dtype=torch.float64)
    return (scale * frames).log_softmax(1).numpy()


def nbest(search: PrefixBeamSearch, log_probs: np.ndarray) -> list[Ranked]:
    return search.nbest(search.step(search.start(), log_probs))


def all_paths(log_probs: np.ndarray) -> dict[tuple[int, ...], tuple[float, Hypothesis]]:
    """Each text's probability, and the frames of its likeliest path, by trying every path."""
    probs = np.exp(log_probs).tolist()
    totals: dict[tuple[int, ...], float] = defaultdict(float)
    likeliest: dict[tuple[int, ...], tuple[float, Hypothesis]] = {}
    for path in itertools.product(range(len(probs[0])), repeat=len(probs)):
        prob = math.prod(row[token] for row, token in zip(probs, path, strict=True))
        runs, frame = [], 0
        for token, run in itertools.groupby(path):
            end = frame + len(list(run))
            if token:
                highest = max(row[token] for row in probs[frame:end])
                runs.append((token, frame, end, highest))
            frame = end
        hypothesis = Hypothesis(*zip(*runs, strict=True)) if runs else Hypothesis((), (), (), ())
        totals[hypothesis.tokens] += prob
        if prob > likeliest.get(hypothesis.tokens, (-1.0,))[0]:
            likeliest[hypothesis.tokens] = prob, hypothesis
    return {text: (totals[text], hypothesis) for text, (_, hypothesis) in likeliest.items()}


def textbook(
    log_probs: np.ndarray, beam: int, added: Callable[[tuple[int, ...]], float] = lambda _: 0.0
) -> dict[tuple[int, ...], float]:
    """Scores of the texts that are left: dicts of tuples, logarithms, all tokens.

    Args:
        added: what a language model adds to a text.
    """
    prefixes = {(): (0.0, -math.inf)}
    for row in log_probs.tolist():
        after: dict[tuple[int, ...], tuple[float, float]] = defaultdict(lambda: (-math.inf,) * 2)
        for prefix, (blank, label) in prefixes.items():
            for token, log_prob in enumerate(row):
                either = add(blank, label)
                if token == 0:
                    after[prefix] = add(after[prefix][0], either + log_prob), after[prefix][1]
                    continue
                longer, entry = (*prefix, token), either
                if prefix[-1:] == (token,):
                    after[prefix] = after[prefix][0], add(after[prefix][1], label + log_prob)
                    entry = blank
                after[longer] = after[longer][0], add(after[longer][1], entry + log_prob)
        ranked = sorted(after.items(), key=lambda item: -add(*item[1]) - added(item[0]))
        prefixes = dict(ranked[:beam])
    return {prefix: add(*ends) + added(prefix) for prefix, ends in prefixes.items()}


def add(a: float, b: float) -> float:
    return max(a, b) + math.log1p(math.exp(-abs(a - b))) if min(a, b) > -math.inf else max(a, b)


@pytest.mark.parametrize("seed", range(300))
def test_all_texts_with_their_probabilities_and_times(seed: int) -> None:
    """When nothing is pruned: every text, the sum of its paths, and its likeliest path's frames."""
    num_frames, vocab_size = 1 + seed % 5, 2 + seed // 5 % 3
    log_probs = random_log_probs(seed, num_frames, vocab_size)
    expected = all_paths(log_probs)
    found = nbest(PrefixBeamSearch(beam=5000, **ALL), log_probs)
    assert {each.hypothesis.tokens for each in found} == expected.keys()
    for hypothesis, score in found:
        probability, likeliest = expected[hypothesis.tokens]
        assert math.exp(score) == pytest.approx(probability, rel=1e-9)
        assert hypothesis[:3] == likeliest[:3]
        assert hypothesis.confidences == pytest.approx(likeliest.confidences)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def agrees_with_the_textbook(seed: int) -> bool:
    beam, vocab_size = 1 + seed % 12, 2 + seed % 7
    log_probs = random_log_probs(seed, 25, vocab_size, scale=0.5 + seed % 4)
    expected = textbook(log_probs, beam)
    found = {each.hypothesis.tokens: each.score for each in nbest(
        PrefixBeamSearch(beam, **ALL), log_probs
    )}  # fmt: skip
    return found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(300))
def test_a_beam_is_that_of_trying_all_tokens(seed: int) -> None:
    assert agrees_with_the_textbook(seed)


def test_control_texts_that_come_back_must_be_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that left the beam and came back is the parent of those that were made of it."""
    fresh = itertools.count(1)
    monkeypatch.setattr(
        asrkit.search.prefix_beam, "hash", lambda _: next(fresh), raising=False
    )  # every text differs from all others
    assert not all(map(agrees_with_the_textbook, range(40)))


def pieces(log_probs: np.ndarray, seed: int) -> list[np.ndarray]:
    draw = torch.Generator().manual_seed(seed)
    cuts = torch.randint(0, len(log_probs) + 1, (seed % 9,), generator=draw)
    cuts = [0, *sorted(cuts.tolist()), len(log_probs)]
    return [log_probs[a:b] for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize("seed", range(20))
def test_where_one_path_outweighs_the_rest_it_is_greedy(seed: int) -> None:
    """The same tokens, frames and confidences."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 12, (2 * STABLE_FRAMES,), generator=draw)
    log_probs = torch.randn(len(labels), 12, generator=draw)
    log_probs += 12.0 * torch.nn.functional.one_hot(labels, 12)
    rows = log_probs.log_softmax(1).numpy()
    search, greedy = PrefixBeamSearch(), GreedySearch()
    expected = greedy.best(greedy.step(greedy.start(), rows))
    assert len(expected.tokens) > 100
    assert search.best(search.step(search.start(), rows)) == expected


def test_long_audio_does_not_underflow() -> None:
    """Probabilities below all that a float can hold; the textbook's logarithms do not mind."""
    log_probs = random_log_probs(0, 1000, 6, scale=0.5)
    found = nbest(PrefixBeamSearch(2, **ALL), log_probs)
    expected = textbook(log_probs, 2)
    assert max(expected.values()) < math.log(5e-324)
    assert {e.hypothesis.tokens: e.score for e in found} == pytest.approx(expected, abs=1e-6)
    search, even = PrefixBeamSearch(4), np.log(np.full((1500, 2), 0.5))
    beam = search.step(search.start(), even).beam  # texts whose paths are many and unlikely
    assert all(each.best > 0.0 for each in beam)
    steady = np.tile([[-20.0, -1.0]], (1000, 1))
    assert search.best(search.step(search.start(), steady))[:3] == ((1,), (0,), (1000,))


def test_a_frame_that_is_almost_surely_blank_is_a_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipped, it still parts two equal tokens; the others' probabilities there do not count."""
    sure = [0.95, 0.04, 0.01]
    speech, end = [0.1, 0.8, 0.1], [0.3, 0.4, 0.3]
    frames = np.float32([speech, sure, speech, sure, sure, end])
    blank_only = frames.copy()
    blank_only[frames[:, 0] > 0.9, 1:] = 0.0
    skipping = PrefixBeamSearch(100, min_token_prob=0.0, skip_blank_prob=0.9)
    found = nbest(skipping, np.log(frames))
    assert found[0].hypothesis.tokens[:2] == (1, 1)
    everything = PrefixBeamSearch(100, **ALL)
    with np.errstate(divide="ignore"):
        expected = nbest(everything, np.log(blank_only))
    assert [e.hypothesis for e in found] == [e.hypothesis for e in expected]
    assert [e.score for e in found] == pytest.approx([e.score for e in expected])
    assert len(nbest(everything, np.log(frames))) > len(found)
    monkeypatch.setattr("asrkit.search.beam.STABLE_FRAMES", 1)
    assert skipping.stable(skipping.step(skipping.start(), np.log(frames[:5]))) == ()


def test_unlikely_tokens_begin_nothing() -> None:
    """But a text that has one already keeps it, and the likeliest token may always begin one."""
    frames = np.log([[0.5, 0.45, 0.05], [0.5, 0.05, 0.45]])
    found = {e.hypothesis.tokens: math.exp(e.score) for e in nbest(
        PrefixBeamSearch(100, min_token_prob=0.1, skip_blank_prob=1.0), frames
    )}  # fmt: skip
    expected = {(): 0.25, (1,): 0.45 * 0.55 + 0.5 * 0.05, (2,): 0.5 * 0.45, (1, 2): 0.45 * 0.45}
    assert found == pytest.approx(expected)
    found = nbest(PrefixBeamSearch(100, min_token_prob=0.9, skip_blank_prob=1.0), frames)
    assert (1, 2) in {e.hypothesis.tokens for e in found}
    impossible = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]).log().numpy()
    found = nbest(PrefixBeamSearch(**ALL), impossible)
    assert {e.hypothesis.tokens for e in found} == {(1,), (1, 2)}


def test_the_smallest_probabilities_are_rescaled() -> None:
    """2**-1040 is below the smallest normal number: its factor would be above the largest."""
    lowest = -1040 * math.log(2.0)
    log_probs = np.array([[lowest, -math.inf, -math.inf], [-1.0, -2.0, -3.0]])
    found = nbest(PrefixBeamSearch(**ALL), log_probs)
    assert [each.hypothesis.tokens for each in found] == [(), (1,), (2,)]
    assert [each.score for each in found] == pytest.approx([lowest - n for n in (1, 2, 3)])


@pytest.mark.parametrize("row", [[-math.inf] * 3, [-2000.0] * 3, [math.nan] * 3])
def test_frames_that_are_no_distribution(row: list[float]) -> None:
    with pytest.raises(ValueError, match="every hypothesis has probability 0"):
        nbest(PrefixBeamSearch(**ALL), np.array([row, row]))


def variants(seed: int) -> tuple[int, int]:
    """The most times of a text, and the most lists of a beam, in frames with equally likely paths
    and texts and several roundings."""
    draw = torch.Generator().manual_seed(seed)
    levels = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.4, 0.4, 0.2]]).double()
    frames = levels[torch.randint(3, (4,), generator=draw)].repeat_interleave(2, 0).log()
    times, lists = (defaultdict[object, set[object]](set) for _ in range(2))
    for _ in range(8):
        noise = 1e-9 * torch.randn(frames.shape, generator=draw).double()
        for beam in (2, 3, 5, 2000):
            found = nbest(PrefixBeamSearch(beam, **ALL), (frames + noise).numpy())
            lists[beam].add(tuple(best.tokens for best, _ in found))
        for best, _ in found:
            times[best.tokens].add((best.starts, best.ends))
    return max(map(len, times.values())), max(map(len, lists.values()))


def test_rounding_does_not_choose_between_equally_likely_paths_and_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other packets and batches round in other ways. Control: without a margin results differ."""
    assert {*map(variants, range(9))} == {(1, 1)}
    monkeypatch.setattr(asrkit.search.prefix_beam, "TIE", 1.0)
    times, lists = zip(*map(variants, range(9)), strict=True)
    assert max(times) > 1
    assert max(lists) > 1


def test_scores_that_differ_by_rounding_keep_their_order() -> None:
    """Also at the edge between two values of 6 digits, and in a chain; larger differences count."""
    edge = (-1.2345675 - 1e-12, -1.2345675 + 1e-12)
    assert round(edge[0], 6) < round(edge[1], 6)  # the control
    for scores in (edge, (-8e-7, 0.0, 8e-7)):
        assert in_order(range(len(scores)), scores.__getitem__) == [*range(len(scores))]
    assert in_order(range(3), (-2e-6, 0.0, 2e-6).__getitem__) == [2, 1, 0]


def test_of_equally_likely_paths_the_one_whose_last_token_ends_first_has_the_times() -> None:
    search = PrefixBeamSearch(beam=4)
    frames = np.log(np.full((4, 2), 0.5))
    ranked = [each.hypothesis for each in nbest(search, frames)]
    assert [each.ends for each in ranked if each.tokens == (1,)] == [(1,)]
