"""CTC paths as linked lists of tokens, and the prefix that the paths of all hypotheses share."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from asrkit.search.base import NOTHING, Hypothesis

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


class Chains(NamedTuple):
    """Paths without pointers, for saving: links are numbered from 1 on, 0 is the settled prefix."""

    settled: Hypothesis
    links: tuple[
        tuple[int, int, int, int, float], ...
    ]  # as Path, with the number of the one before
    ends: tuple[int | None, ...]  # the last link of each path; None where there is none


def chains(paths: Iterable[Path | None], settled: Settled) -> Chains:
    """Paths, with the links that they share."""
    numbers, rows, ends = {id(settled.path): 0}, list[tuple[int, int, int, int, float]](), []
    for path in paths:
        for link in list(links(path, settled))[::-1]:
            if id(link) not in numbers:
                numbers[id(link)] = len(numbers)
                rows.append((numbers[id(link[0])], *link[1:]))
        empty = path is None and settled.path is not None
        ends.append(None if empty else numbers[id(path)])
    return Chains(settled.hypothesis, tuple(rows), tuple(ends))


def paths_of(chains: Chains) -> tuple[list[Path | None], Settled]:
    """The paths and the settled prefix of `chains`.

    Raises:
        ValueError: if a link does not come after the one before it.
    """
    tokens, starts, ends, confidences = chains.settled
    settled = Settled(None, chains.settled)
    if tokens:  # only that there is a link counts: nothing looks at what is before it, or in it
        settled = Settled((None, tokens[-1], starts[-1], ends[-1], confidences[-1]), chains.settled)
    found: list[Path | None] = [settled.path]
    for before, token, start, end, highest in chains.links:
        if not 0 <= before < len(found):
            raise ValueError(f"a path leads to link {before} of {len(found)}")
        found.append((found[before], token, start, end, highest))
    if not all(end is None or 0 <= end < len(found) for end in chains.ends):
        raise ValueError(f"a path ends at a link that is none of {len(found)}")
    return [None if end is None else found[end] for end in chains.ends], settled
