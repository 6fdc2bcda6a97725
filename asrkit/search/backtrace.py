"""CTC paths as linked lists of tokens, and the prefix that the paths of all hypotheses share."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from asrkit.search.base import NOTHING, Hypothesis

# A path's last link: the path before it, the token, its first frame, the frame after its last, its
# highest posterior. A plain tuple, for speed: every hypothesis makes one in every frame.
Path = tuple["Path | None", int, int, int, float]


class StablePrefix(NamedTuple):
    """The common prefix of all hypotheses' paths: it cannot change, so it is backtraced once."""

    path: Path | None
    hypothesis: Hypothesis


NOTHING_STABLE = StablePrefix(None, NOTHING)


def extend_stable(
    path: Path | None, ends: Iterable[Path | None], stable: StablePrefix
) -> StablePrefix:
    """The stable prefix so far, extended by all that the paths have in common.

    Args:
        path: the likeliest path.
        ends: the last link that cannot change of every path, the likeliest among them.
        stable: the prefix so far.
    """
    chain = list(links(path, stable))  # the last first
    place = {id(link): i for i, link in enumerate(chain)}
    common = 0
    for end in ends:
        shared = (place[id(link)] for link in links(end, stable) if id(link) in place)
        common = max(common, next(shared, len(chain)))
    if common == len(chain):
        return stable
    return StablePrefix(chain[common], backtrace(chain[common], stable))


def links(path: Path | None, stable: StablePrefix) -> Iterator[Path]:
    """The links of a path, from the last back to the stable prefix."""
    while path is not None and path is not stable.path:
        yield path
        path = path[0]


def backtrace(path: Path | None, stable: StablePrefix) -> Hypothesis:
    """The tokens of a path with their frames and confidences."""
    unstable = list(links(path, stable))[::-1]
    if not unstable:
        return stable.hypothesis
    _, *columns = zip(*unstable, strict=True)
    return Hypothesis(*(a + b for a, b in zip(stable.hypothesis, columns, strict=True)))


class Chains(NamedTuple):
    """Paths without pointers, for saving: links are numbered from 1 on, 0 is the stable prefix."""

    stable: Hypothesis
    links: tuple[
        tuple[int, int, int, int, float], ...
    ]  # as Path, with the number of the one before
    ends: tuple[int | None, ...]  # the last link of each path; None where there is none


def chains(paths: Iterable[Path | None], stable: StablePrefix) -> Chains:
    """Paths, with the links that they share."""
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
    """The paths and the stable prefix of `chains`.

    Raises:
        ValueError: if a link does not come after the one before it.
    """
    tokens, starts, ends, confidences = chains.stable
    stable = StablePrefix(None, chains.stable)
    if tokens:  # only that there is a link counts: nothing looks at what is before it, or in it
        stable = StablePrefix(
            (None, tokens[-1], starts[-1], ends[-1], confidences[-1]), chains.stable
        )
    found: list[Path | None] = [stable.path]
    for before, token, start, end, highest in chains.links:
        if not 0 <= before < len(found):
            raise ValueError(f"a path leads to link {before} of {len(found)}")
        found.append((found[before], token, start, end, highest))
    if not all(end is None or 0 <= end < len(found) for end in chains.ends):
        raise ValueError(f"a path ends at a link that is none of {len(found)}")
    return [None if end is None else found[end] for end in chains.ends], stable
