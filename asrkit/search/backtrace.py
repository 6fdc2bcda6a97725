"""CTC paths as linked lists of tokens, and the prefix that the paths of all hypotheses share."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from asrkit.search.base import NOTHING, Hypothesis

# A path's last link: the path before it, the token, its first frame, the frame after its last, its
# highest posterior. A plain tuple for speed, because every hypothesis creates one in every frame.
Path = tuple["Path | None", int, int, int, float]


class StablePrefix(NamedTuple):
    """The common prefix of all hypotheses' paths, which cannot change and is backtraced once."""

    path: Path | None
    hypothesis: Hypothesis


NOTHING_STABLE = StablePrefix(None, NOTHING)


def extend_stable(
    path: Path | None, ends: Iterable[Path | None], stable: StablePrefix
) -> StablePrefix:
    """Extend the stable prefix by the links that all paths share.

    Args:
        ends: last unchangeable link of every path, including the likeliest.
    """
    chain = list(links(path, stable))  # the last link first
    place = {id(link): i for i, link in enumerate(chain)}
    common = 0
    for end in ends:
        shared = (place[id(link)] for link in links(end, stable) if id(link) in place)
        common = max(common, next(shared, len(chain)))
    if common == len(chain):
        return stable
    return StablePrefix(chain[common], backtrace(chain[common], stable))


def links(path: Path | None, stable: StablePrefix) -> Iterator[Path]:
    """Yield the links of a path, from the last back to the stable prefix."""
    while path is not None and path is not stable.path:
        yield path
        path = path[0]


def backtrace(path: Path | None, stable: StablePrefix) -> Hypothesis:
    """Return the tokens of a path with their frames and confidences."""
    unstable = list(links(path, stable))[::-1]
    if not unstable:
        return stable.hypothesis
    _, *columns = zip(*unstable, strict=True)
    return Hypothesis(*(a + b for a, b in zip(stable.hypothesis, columns, strict=True)))


class Chains(NamedTuple):
    """Paths without pointers, for saving: links have numbers from 1; 0 is the stable prefix."""

    stable: Hypothesis
    links: tuple[tuple[int, int, int, int, float], ...]  # as Path, with the previous link's number
    ends: tuple[int | None, ...]  # number of the last link of each path; None for no path


def chains(paths: Iterable[Path | None], stable: StablePrefix) -> Chains:
    """Convert paths to numbered links, which paths can share."""
    numbers, rows, ends = {id(stable.path): 0}, list[tuple[int, int, int, int, float]](), []
    for path in paths:
        for link in list(links(path, stable))[::-1]:
            if id(link) not in numbers:
                numbers[id(link)] = len(numbers)
                rows.append((numbers[id(link[0])], *link[1:]))
        empty = path is None and stable.path is not None
        ends.append(None if empty else numbers[id(path)])
    return Chains(stable.hypothesis, tuple(rows), tuple(ends))


def paths_of(chains: Chains) -> tuple[list[Path | None], StablePrefix]:
    """Return the paths and the stable prefix of `chains`."""
    tokens, starts, ends, confidences = chains.stable
    stable = StablePrefix(None, chains.stable)
    if tokens:  # only the identity of this link is used, not its contents
        stable = StablePrefix(
            (None, tokens[-1], starts[-1], ends[-1], confidences[-1]), chains.stable
        )
    paths: list[Path | None] = [stable.path]
    for before, token, start, end, highest in chains.links:
        paths.append((paths[before], token, start, end, highest))
    return [None if end is None else paths[end] for end in chains.ends], stable
