"""Hypotheses and links of paths that no search writes are refused."""

import pytest

from asrkit.search.backtrace import Chains, paths_of
from asrkit.search.base import NOTHING, Hypothesis, checked

FINE = Hypothesis((0, 2), (0, 3), (3, 5), (0.0, 1.0))


def test_possible_hypotheses() -> None:
    assert checked(FINE, vocab_size=3, blank=1, frame=5) == FINE
    assert checked(NOTHING, vocab_size=3, blank=1, frame=0) == NOTHING


@pytest.mark.parametrize(
    "wrong",
    [
        FINE._replace(tokens=(0,)),
        FINE._replace(tokens=(0, 3)),
        FINE._replace(tokens=(-1, 2)),
        FINE._replace(tokens=(0, 1)),
        FINE._replace(confidences=(0.5,)),
        FINE._replace(confidences=(0.5, 2.5)),
        FINE._replace(confidences=(-0.1, 0.5)),
        FINE._replace(starts=(-1, 3)),
        FINE._replace(starts=(0, 2)),
        FINE._replace(starts=(0, 6)),
        FINE._replace(ends=(3, 6)),
    ],
)
def test_impossible_hypotheses(wrong: Hypothesis) -> None:
    with pytest.raises(ValueError, match="does not fit 3 labels and 5 frames"):
        checked(wrong, vocab_size=3, blank=1, frame=5)


def test_links_lead_back() -> None:
    """Link 0 is the stable prefix."""
    link = (2, 0, 1, 0.5)
    (path, none), _ = paths_of(Chains(NOTHING, ((0, *link), (1, *link)), (2, None)))
    assert path == ((None, *link), *link)
    assert none is None
    for links, ends in [(((1, *link),), ()), (((-1, *link),), ()), ((), (1,)), ((), (-1,))]:
        with pytest.raises(ValueError, match=r"numbers? (of a previous link must be )?below 1"):
            paths_of(Chains(NOTHING, links, ends))
