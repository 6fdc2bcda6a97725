"""Searches of a transducer against loops over frames and labels, and all alignments."""

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from asrkit.backends.pytorch import EagerParts
from asrkit.model import TransducerHead, build_head
from asrkit.search import Ranked, TransducerBeamSearch, TransducerGreedySearch
from asrkit.search.base import Hypothesis
from tests.search.test_prefix_beam import ALL, add

HEADS: list[dict[str, Any]] = [
    {"predictor": "lstm", "predictor_layers": 2, "max_symbols": 3},
    {"predictor": "lstm", "max_symbols": 5},
    {"predictor": "stateless", "context": 3, "max_symbols": 2},
    {"predictor": "stateless", "context": 1, "max_symbols": 1},
]


def head(vocab_size: int = 12, blank: float = 7.0, **options: Any) -> TransducerHead:
    """A head in float64 that writes some labels, now and then several in a frame."""
    torch.manual_seed(2)
    sizes = {"kind": "transducer", "predictor_dim": 24, "joint_dim": 32}
    built = build_head(sizes | options, 16, vocab_size)
    assert isinstance(built, TransducerHead)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.normal_(std=0.5)
        built.out.bias[0] += blank
        for name, embedding in built.named_parameters():
            if "embed" in name:
                embedding[0] = 0.0
    return built.double().eval()


def frames(count: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, 16, generator=draw, dtype=torch.float64)


@torch.inference_mode()
def by_definition(own: TransducerHead, encoded: Tensor) -> Hypothesis:
    """One frame after another, one label after another; the predictor reads all labels anew."""
    tokens, starts, confidences = list[int](), list[int](), list[float]()
    for number, frame in enumerate(own.project(encoded)):
        for _ in range(own.max_symbols):
            known = torch.tensor([[0, *tokens]])
            output, _ = own.predictor(known, own.predictor.start(1))
            log_probs = own.join(frame, own.from_predictor(output[0, -1])).log_softmax(0)
            best, token = log_probs.max(0)
            if token == 0:
                break
            tokens.append(int(token))
            starts.append(number)
            confidences.append(math.exp(best))
    ends = [a if a == b else a + 1 for a, b in zip(starts, [*starts[1:], -1], strict=True)]
    return Hypothesis(tuple(tokens), tuple(starts), tuple(ends), tuple(confidences))


def assert_same(found: Hypothesis, expected: Hypothesis) -> None:
    assert found[:3] == expected[:3]
    pairs = zip(found.confidences, expected.confidences, strict=True)
    assert all(abs(a - b) < 1e-9 for a, b in pairs)


@pytest.mark.parametrize("options", HEADS)
def test_search_equals_the_loop_over_frames(options: dict[str, Any]) -> None:
    own, encoded = head(**options), frames(60)
    search = TransducerGreedySearch(EagerParts(own))
    found = search.best(search.step(search.start(), encoded.numpy()))
    assert_same(found, by_definition(own, encoded))
    assert len(found.tokens) > 10
    several = len(found.starts) - len(set(found.starts))
    assert (several > 0) == (own.max_symbols > 1)


Text = tuple[int, ...]
SMALL = [options | {"vocab_size": 4, "blank": 3.0} for options in HEADS]


@torch.inference_mode()
def log_probs(own: TransducerHead, encoded: Tensor) -> Callable[[Text], Tensor]:
    """Log-probabilities (E, V) of all frames after a text, which the predictor reads anew."""
    projected = own.project(encoded)

    @cache
    def after(text: Text) -> Tensor:
        output, _ = own.predictor(torch.tensor([[0, *text]]), own.predictor.start(1))
        return own.join(projected, own.from_predictor(output[0, -1])).log_softmax(1)

    return torch.inference_mode()(after)


def nbest(search: TransducerBeamSearch, encoded: Tensor) -> list[Ranked]:
    return search.nbest(search.step(search.start(), encoded.numpy()))


def alignments(
    own: TransducerHead, encoded: Tensor
) -> dict[Text, tuple[float, float, list[tuple[int, float]]]]:
    """Each text's log-probability, and that of its likeliest alignment with the labels' frames and
    probabilities, by trying every alignment."""
    scores, found = log_probs(own, encoded), dict[Text, tuple[float, float, list[Any]]]()
    counts = itertools.product(range(own.max_symbols + 1), repeat=len(encoded))
    for each in counts:
        places = [frame for frame, count in enumerate(each) for _ in range(count)]
        for text in itertools.product(range(1, own.vocab_size), repeat=len(places)):
            total, labels = 0.0, []
            for i, (frame, token) in enumerate(zip(places, text, strict=True)):
                log_prob = float(scores(text[:i])[frame, token])
                labels.append((frame, math.exp(log_prob)))
                total += log_prob
            for frame in range(len(encoded)):
                written = sum(each[: frame + 1])
                total += float(scores(text[:written])[frame, 0])
            before, best, path = found.get(text, (-math.inf, -math.inf, []))
            if total > best:
                best, path = total, labels
            found[text] = add(before, total), best, path
    return found


@pytest.mark.parametrize("options", SMALL)
def test_a_wide_beam_is_the_sum_over_all_alignments(options: dict[str, Any]) -> None:
    """Every text, the sum of its alignments, and its likeliest alignment's frames."""
    own = head(**options | {"max_symbols": min(options["max_symbols"], 2)})
    encoded = frames(2, 3)
    expected = alignments(own, encoded)
    found = nbest(TransducerBeamSearch(EagerParts(own), beam=10**6, **ALL), encoded)
    assert len(found) == len(expected) > 12
    for hypothesis, score in found:
        total, _, path = expected[hypothesis.tokens]
        assert score == pytest.approx(total, abs=1e-9)
        assert [*hypothesis.starts] == [frame for frame, _ in path]
        assert hypothesis.confidences == pytest.approx([prob for _, prob in path], abs=1e-9)
    scores = [each.score for each in found]
    assert scores == pytest.approx(sorted(scores, reverse=True), abs=2e-6)


def definition(
    own: TransducerHead,
    encoded: Tensor,
    beam: int,
    added: Callable[[Text], float] = lambda _: 0.0,
) -> dict[Text, float]:
    """Scores of the texts that are left: dicts of tuples, all labels, the predictor anew."""
    scores, kept = log_probs(own, encoded), {(): 0.0}
    for frame in range(len(encoded)):
        ended, current = dict[Text, float](), kept
        for count in range(own.max_symbols + 1):
            longer = {}
            for text, score in current.items():
                row = (scores(text)[frame] + score).tolist()
                ended[text] = add(ended.get(text, -math.inf), row[0])
                if count < own.max_symbols:
                    longer |= {(*text, token): row[token] for token in range(1, len(row))}
            both = [*ended.items(), *longer.items()]
            ranked = sorted((score + added(text) for text, score in both), reverse=True)
            floor = ranked[beam - 1] if len(ranked) >= beam else -math.inf
            ended = {text: each for text, each in ended.items() if each + added(text) >= floor}
            current = {text: each for text, each in longer.items() if each + added(text) >= floor}
        kept = dict(sorted(ended.items(), key=lambda item: -item[1] - added(item[0]))[:beam])
    return {text: score + added(text) for text, score in kept.items()}


@pytest.mark.parametrize("seed", range(24))
def test_a_beam_is_that_of_trying_all_labels(seed: int) -> None:
    own, encoded = head(**(HEADS + SMALL)[seed % 8]), frames(12, seed)
    beam = 1 + seed % 7
    found = nbest(TransducerBeamSearch(EagerParts(own), beam=beam, **ALL), encoded)
    expected = definition(own, encoded, beam)
    assert {each.hypothesis.tokens: each.score for each in found} == pytest.approx(
        expected, abs=1e-9
    )


@pytest.mark.parametrize("penalty", [0.0, 1.5])
@pytest.mark.parametrize("options", HEADS)
def test_a_beam_of_one_is_greedy(options: dict[str, Any], penalty: float) -> None:
    own, encoded = head(**options), frames(60).numpy()
    beam = TransducerBeamSearch(EagerParts(own), beam=1, blank_penalty=penalty)
    greedy = TransducerGreedySearch(EagerParts(own), blank_penalty=penalty)
    found, expected = (each.best(each.step(each.start(), encoded)) for each in (beam, greedy))
    assert len(expected.tokens) > 10
    assert_same(found, expected)


def test_a_label_that_wins_some_frames_later_is_heard() -> None:
    """Else an endpointer would hear nothing, and never end the segment."""
    late = 0
    for seed in range(20):
        search = TransducerBeamSearch(EagerParts(head(**HEADS[seed % 4])), beam=4)
        state, old = search.start(), ()
        for number, frame in enumerate(np.split(frames(20, seed).numpy(), 20)):
            after = search.step(state, frame)
            (quiet,) = after.quiet
            best = after.beam[0]
            new = search.nbest(after)[0].hypothesis.tokens
            if new == old:
                assert quiet
            elif new and new[-1:] != old[-1:]:
                assert not quiet
                late += best.path is not None and best.path[2] < number
            state, old = after, new
    assert late  # the control: frames that write no label of the sequence that they make likeliest


def test_unlikely_labels_and_certain_blanks_are_skipped() -> None:
    """Options of the CTC search: with either, fewer texts; the best one stays."""
    own, encoded = head(blank=9.0, **HEADS[0]), frames(8)
    everything = nbest(TransducerBeamSearch(EagerParts(own), beam=50, **ALL), encoded)
    for options in ({"min_token_prob": 0.05}, {"skip_blank_prob": 0.8}):
        found = nbest(TransducerBeamSearch(EagerParts(own), beam=50, **ALL | options), encoded)
        assert found[0].hypothesis == everything[0].hypothesis
        assert {each.hypothesis.tokens for each in found} != {
            each.hypothesis.tokens for each in everything
        }


def test_the_likeliest_label_is_tried_however_unlikely_it_is() -> None:
    """But not where frames are not numbers."""
    search = TransducerBeamSearch(EagerParts(head(**HEADS[0])), min_token_prob=1.0)
    assert search.best(search.step(search.start(), frames(30).numpy())).tokens
    with pytest.raises(ValueError, match="every hypothesis has probability 0"):
        search.step(search.start(), np.full((1, 16), math.nan))
