"""Greedy search of a transducer against a loop over frames and labels."""

import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from asrkit.model import TransducerHead, build_head
from asrkit.runtime.serialization import plain, read
from asrkit.search import TransducerGreedySearch
from asrkit.search.base import Hypothesis
from asrkit.search.transducer_greedy import TransducerState

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
    search = TransducerGreedySearch(own)
    found = search.best(search.step(search.start(), encoded))
    assert_same(found, by_definition(own, encoded))
    assert len(found.tokens) > 10
    several = len(found.starts) - len(set(found.starts))
    assert (several > 0) == (own.max_symbols > 1)


@pytest.mark.parametrize("options", HEADS)
def test_any_split_of_the_frames_equals_the_whole(options: dict[str, Any]) -> None:
    search, encoded = TransducerGreedySearch(head(**options)), frames(60)
    whole = search.step(search.start(), encoded)
    for seed in range(4):
        draw, state, place = random.Random(seed), search.start(), 0
        while place < len(encoded):
            size = draw.choice([0, 1, 2, 7, 30])
            before = search.partial(state).tokens
            state = search.step(state, encoded[place : place + size])
            assert search.stable(state)[: len(before)] == before
            place += size
        assert_same(search.best(state), search.best(whole))
        assert state.frame == whole.frame
        assert torch.allclose(state.output, whole.output, atol=1e-12)
    assert search.nbest(whole) == []


def test_control_a_predictor_that_forgets_at_a_split_is_noticed() -> None:
    search, encoded = TransducerGreedySearch(head(**HEADS[0])), frames(60)
    whole = search.best(search.step(search.start(), encoded))
    first = search.step(search.start(), encoded[:30])
    fresh = search.start()
    for forgetful in (
        first._replace(predictor=fresh.predictor),
        first._replace(output=fresh.output),
    ):
        with pytest.raises(AssertionError):
            assert_same(search.best(search.step(forgetful, encoded[30:])), whole)


@pytest.mark.parametrize("options", HEADS)
def test_streams_of_a_batch_equal_streams_alone(options: dict[str, Any]) -> None:
    """At different places, with different numbers of frames, none among them."""
    search = TransducerGreedySearch(head(**options))
    parts = [frames(size, seed) for seed, size in enumerate([40, 0, 17, 1, 33])]
    states = [search.step(search.start(), frames(n, n)) for n in range(5)]
    together = search.step_all(states, parts)
    for state, part, found in zip(states, parts, together, strict=True):
        alone = search.step(state, part)
        assert_same(found.hypothesis, alone.hypothesis)
        assert found.frame == alone.frame
        assert torch.allclose(found.output, alone.output, atol=1e-12)


class Counted:
    """A head that counts the calls of its joiner and predictor."""

    def __init__(self, own: TransducerHead) -> None:
        self.own, self.joins, self.predictions = own, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def join(self, encoded: Tensor, predicted: Tensor) -> Tensor:
        self.joins += 1
        return self.own.join(encoded, predicted)

    def predict(self, tokens: Tensor, state: Any) -> Any:
        self.predictions += 1
        return self.own.predict(tokens, state)


def test_a_round_calls_the_joiner_once_for_all_streams() -> None:
    counted = Counted(head(**HEADS[0]))
    search = TransducerGreedySearch(counted)
    parts, calls = [frames(40, seed) for seed in range(8)], []
    for part in parts:
        state = search.start()
        before = counted.joins
        search.step(state, part)
        calls.append(counted.joins - before)
    counted.joins = 0
    search.step_all([search.start() for _ in parts], parts)
    assert counted.joins == max(calls) < sum(calls) / 4


def test_quiet_frames_are_those_without_a_label() -> None:
    search, encoded = TransducerGreedySearch(head(**HEADS[0])), frames(60)
    state = search.step(search.start(), encoded[:20])
    after = search.step(state, encoded[20:])
    spoken = {start - 20 for start in after.hypothesis.starts if start >= 20}
    assert after.quiet == tuple(i not in spoken for i in range(40))
    quiet = search.step(search.start(), encoded).quiet
    assert quiet == state.quiet + after.quiet
    assert 5 < sum(quiet) < 55


def test_blank_penalty_writes_more() -> None:
    own, encoded = head(**HEADS[0]), frames(60)
    counts = []
    for penalty in (-2.0, 0.0, 2.0):
        search = TransducerGreedySearch(own, blank_penalty=penalty)
        counts.append(len(search.best(search.step(search.start(), encoded)).tokens))
    assert counts == sorted(set(counts))
    with pytest.raises(ValueError, match="blank_penalty must be a finite number, got inf"):
        TransducerGreedySearch(own, blank_penalty=math.inf)


@pytest.mark.parametrize("options", HEADS)
def test_saved_state_goes_on_bit_for_bit(options: dict[str, Any]) -> None:
    search, encoded = TransducerGreedySearch(head(**options)), frames(60)
    state = search.step(search.start(), encoded[:31])
    tensors: dict[str, Tensor] = {}
    written = plain(search.to_value(state), tensors)
    restored = search.from_value(read(TransducerState, written, tensors))
    expected, found = (search.step(each, encoded[31:]) for each in (state, restored))
    assert found.hypothesis == expected.hypothesis
    assert torch.equal(found.output, expected.output)
