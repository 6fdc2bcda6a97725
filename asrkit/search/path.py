"""Likeliest paths, token by token, and what the paths of all texts begin with."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from asrkit.search.hypothesis import NOTHING, Hypothesis

# A path by its last token: the path before it, the token, its first frame, the frame after its
# last, its highest posterior. A plain tuple, because every text makes one in every frame.
Path = tuple["Path | None", int, int, int, float]


class Settled(NamedTuple):
    """What all likeliest paths begin with: it cannot change any more and need not be read again."""

    path: Path | None
    hypothesis: Hypothesis


UNSETTLED = Settled(None, NOTHING)


def settle(path: Path | None, ends: Iterable[Path | None], settled: Settled) -> Settled:
    """More of the path, as far as all others go along with it.

    Args:
        path: the likeliest of the paths.
        ends: of all paths, itself among them, as far as they cannot change.
    """
    chain = list(links(path, settled))  # the last first
    place = {id(link): i for i, link in enumerate(chain)}
    common = 0
    for end in ends:
        shared = (place[id(link)] for link in links(end, settled) if id(link) in place)
        common = max(common, next(shared, len(chain)))
    if common == len(chain):
        return settled
    return Settled(chain[common], said(chain[common], settled))


def links(path: Path | None, settled: Settled) -> Iterator[Path]:
    """A path token by token, from the last back to what is settled."""
    while path is not None and path is not settled.path:
        yield path
        path = path[0]


def said(path: Path | None, settled: Settled) -> Hypothesis:
    """A path's tokens with their frames and confidences."""
    unsettled = list(links(path, settled))[::-1]
    if not unsettled:
        return settled.hypothesis
    _, *columns = zip(*unsettled, strict=True)
    return Hypothesis(*(a + b for a, b in zip(settled.hypothesis, columns, strict=True)))
