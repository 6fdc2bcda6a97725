"""Contexts and frame rates: their arithmetic, by counting; what a user may ask for."""

from typing import Any

import pytest
import torch

from asrkit.errors import UserError
from asrkit.model import FULL, FULL_CONTEXT, Context, FrameRate
from asrkit.model.subsampling import num_valid

LIVE = Context(16, 64, 4)


@pytest.mark.parametrize(("factor", "lookahead"), [(4, 0), (8, 0), (4, 3), (6, 5), (8, 7)])
def test_num_frames_counts_frames_that_see_enough(factor: int, lookahead: int) -> None:
    rate = FrameRate(factor, lookahead)
    for count in range(40):
        needed = 1 if lookahead == 0 else factor + lookahead  # of a stream's first encoder frame
        expected = sum(e * factor + needed <= count for e in range(40))
        assert rate.num_frames(count) == expected
        assert num_valid(torch.tensor([count, 0]), rate).tolist() == [expected, 0]


def test_a_step_takes_its_chunks_and_what_they_see_ahead() -> None:
    rate, context = FrameRate(8, lookahead=7), Context(2, 5, 3)
    assert (rate.frame_ms, rate.chunk_frames(context), rate.ahead_frames(context)) == (80, 16, 31)
    assert rate.step_frames(context, 3) == 3 * 16 + 31
    # The last frame that is seen ahead is complete with the last feature frame.
    assert rate.num_frames(rate.step_frames(context)) == 2 + 3
    assert rate.num_frames(rate.step_frames(context) - 1) == 2 + 3 - 1


def test_numbers_that_are_not_given_are_the_defaults() -> None:
    rate = FrameRate(4)
    assert rate.context(LIVE) == LIVE
    assert rate.context(LIVE, 8, right=0) == Context(8, 64, 0)
    assert rate.context(LIVE, "full") == rate.context(LIVE, FULL_CONTEXT) == FULL
    assert rate.context(FULL, left=3) == FULL
    names = [rate.name(each) for each in (LIVE._replace(right=0), LIVE, FULL)]
    assert names == ["640 ms", "640+160 ms", "full"]
    assert rate.name_with_left(LIVE) == "640+160 ms, left 2560 ms"
    assert rate.name_with_left(FULL) == "full"


def test_options_are_those_that_differ_from_the_defaults() -> None:
    rate, other = FrameRate(4), Context(8, 64, 0)
    found = [rate.options(each, LIVE) for each in (LIVE, other, Context(16, 25, 4), FULL)]
    assert found == ["", " --chunk-ms 320 --right-ms 0", " --left-ms 1000", " --chunk-ms full"]
    assert rate.options(FULL, FULL) == ""
    assert rate.options(other, FULL) == " --chunk-ms 320 --left-ms 2560"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"chunk_size": 0}, r"^chunk_size must be 1 to 90000 frames or 'full', got 0$"),
        ({"chunk_size": "all"}, r"^chunk_size must be 1 to 90000 frames or 'full', got 'all'$"),
        ({"left": -1}, r"^left_context must be 0 to 90000 frames, got -1$"),
        ({"right": 1.5}, r"^right_context must be 0 to 90000 frames, got 1.5$"),
        ({"chunk_size": "full", "left": 90001}, r"^left_context must be 0 to 90000 frames"),
    ],
)
def test_a_number_out_of_range_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        FrameRate(4).context(LIVE, **given)


def test_times_are_whole_frames() -> None:
    rate = FrameRate(4)
    assert rate.frames("--left-ms", "2560") == 64
    assert rate.frames("--left-ms", "0") == 0
    for wrong in ("0", "50", "-40", "1e3", "3600040", "9" * 5000):
        with pytest.raises(UserError, match="--chunk-ms must be a multiple of 40 ms from 40 to"):
            rate.frames("--chunk-ms", wrong, 1)
