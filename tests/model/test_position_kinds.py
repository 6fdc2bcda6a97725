"""What is particular to one kind of position encoding, and what is refused."""

import copy

import pytest
import torch

from asrkit.model.positions import KINDS, build_positions
from asrkit.model.positions.bias import ALiBiPosition, T5Position
from tests.model import reference
from tests.model.test_positions import (
    DIM,
    ON_FRAMES,
    distance,
    each,
    marked,
    on_frames,
)

BUCKETS = [
    (32, 128, True), (34, 27, True), (38, 49, True), (64, 81, True), (8, 9, True), (6, 5, True),
    (4, 2, True), (32, 128, False), (12, 81, False), (5, 8, False), (2, 3, False),
]  # fmt: skip


@each(BUCKETS)
def test_t5_buckets(case: tuple) -> None:
    """With (34, 27, True), logs in float32 put distance 18 into bucket 13."""
    ahead = range(-300, 301)
    buckets = T5Position(DIM, 2, *case).buckets(torch.tensor(ahead)).tolist()
    assert buckets == [reference.t5_bucket(d, *case) for d in ahead]
    assert len(set(buckets)) == case[0] - case[2]  # no key ahead is 0 ahead


@pytest.mark.parametrize("heads", reference.ALIBI_EXPONENTS)
def test_alibi_slopes(heads: int) -> None:
    expected = [2**-exponent for exponent in reference.ALIBI_EXPONENTS[heads]]
    assert ALiBiPosition(DIM, heads).slopes == pytest.approx(expected, rel=1e-15)


@each(ON_FRAMES)
def test_a_million_frames_later(case: tuple) -> None:
    position, x, starts = on_frames(*case).float(), torch.randn(2, 3, DIM), [10**6, 10**6 + 12345]
    expected = reference.mark(copy.deepcopy(position).double(), x.double(), starts)
    assert distance(marked(position, x, starts), expected) < 1e-5


REFUSALS = [  # kind, options, message
    ("rotory", {}, f"position must be one of {', '.join(KINDS)}, got 'rotory'; did .* 'rotary'"),
    ("xyz", {}, "position must .*, got 'xyz'$"),
    *(("t5", {"num_buckets": number}, f".* must be an even number of 4 or more, got {number}$")
      for number in (2, 7)),
    ("t5", {"num_buckets": 1, "bidirectional": False}, "num_buckets must be 2 or more, got 1$"),
    ("t5", {"max_distance": 8}, "max_distance must be above 8, the distances .*, got 8$"),
    *(("rotary", {"share": share}, f"share must be above 0 and at most 1, got {share}$")
      for share in (0.0, 1.1, float("nan"))),
    ("rotary", {"share": 0.2}, "share must leave a pair .* got 0.2 of a head's .* = 6 dimensions$"),
    (["shaw"], {}, r"position must be one of .*, got \['shaw'\]$"),
    ("rotary", {"base": 1.0}, "base must be above 1, got 1.0$"),
    *(("compact", {"position_dim": size}, f".* must be even and at least 2, got {size}$")
      for size in (0, 7)),
    ("compact", {"length_factor": 0.0}, "length_factor must be above 0, got 0.0$"),
    ("sinusoidal", {"layout": "max"}, "layout must be one of mix, sep, tensor2tensor, got 'max'"),
]  # fmt: skip


@each(REFUSALS)
def test_refusals(case: tuple) -> None:
    kind, given, message = case
    with pytest.raises(ValueError, match="^" + message):
        build_positions({"kind": kind} | given, DIM, 2, 1)
