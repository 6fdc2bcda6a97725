"""Links of paths as numbers, which saved streams contain."""

from asrkit.search.backtrace import Chains, paths_of
from asrkit.search.base import NOTHING


def test_links_lead_back() -> None:
    """Link 0 is the stable prefix."""
    link = (2, 0, 1, 0.5)
    (path, none), _ = paths_of(Chains(NOTHING, ((0, *link), (1, *link)), (2, None)))
    assert path == ((None, *link), *link)
    assert none is None
