"""Greedy search of a transducer against a loop over frames and labels."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from asrkit.backends.pytorch import EagerParts
from asrkit.model import TransducerHead, build_head
from asrkit.search import TransducerGreedySearch
from asrkit.search.base import Hypothesis

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
