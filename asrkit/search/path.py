"""CTC paths as linked lists of tokens, and the prefix that the paths of all hypotheses share."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from asrkit.search.hypothesis import NOTHING, Hypothesis

# A path's last link: the path before it, the token, its first frame, the frame after its last, its
# highest posterior. A plain tuple, for speed: every hypothesis makes one in every frame.
Path = tuple["Path | None", int, int, int, float]


class Settled(NamedTuple):
    """The common prefix of all hypotheses' paths: it cannot change, so it is backtraced once."""

    path: Path | None
    hypothesis: Hypothesis


UNSETTLED = Settled(None, NOTHING)


def settle(path: Path | None, ends: Iterable[Path | None], settled: Settled) -> Settled:
    """The prefix settled so far, extended by all that the paths have in common.

    Args:
        path: the likeliest path.
        ends: the last link that cannot change of every path, the likeliest among them.
        settled: the prefix so far.
    """
    chain = list(links(path, settled))  # the last first
    place = {id(link): i for i, link in enumerate(chain)}
    common = 0
    for end in ends:
        shared = (place[id(link)] for link in links(end, settled) if id(link) in place)
        common = max(common, next(shared, len(chain)))
    if common == len(chain):
        return settled
    return Settled(chain[common], backtrace(chain[common], settled))


def links(path: Path | None, settled: Settled) -> Iterator[Path]:
    """The links of a path, from the last back to the settled prefix."""
    while path is not None and path is not settled.path:
        yield path
        path = path[0]


def backtrace(path: Path | None, settled: Settled) -> Hypothesis:
    """The tokens of a path with their frames and confidences."""
    unsettled = list(links(path, settled))[::-1]
    if not unsettled:
        return settled.hypothesis
    _, *columns = zip(*unsettled, strict=True)
    return Hypothesis(*(a + b for a, b in zip(settled.hypothesis, columns, strict=True)))
