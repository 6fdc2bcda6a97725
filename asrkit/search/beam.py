"""The part of a beam search that does not depend on the head: its options and its results."""

import copy
import hashlib
import math
from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any, TypeVar

from asrkit.search.backtrace import backtrace
from asrkit.search.base import Hypothesis, Ranked, Search, checked_penalty
from asrkit.search.fusion import Both, Fusion

STABLE_FRAMES = 256  # frames between searches for a longer stable prefix
# Packets and batches change rounding errors, which are smaller than this factor. A path replaces
# another path only if it is likelier by more than it, so the times of a token do not change.
TIE = 1.0 + 1e-6
LOG_TIE = math.log(TIE)

T = TypeVar("T")


class BeamSearch(Search):
    """A search that keeps the likeliest token sequences, each with the sum of its paths.

    A state has `beam`, the sequences with the likeliest first, and `stable`, the links that their
    paths share. A sequence has `path`, the likeliest one, and `context`, the state of the fusion.

    Args:
        beam: number of sequences kept after each frame.
        min_token_prob: smallest probability of a token that may extend a sequence; a frame's
            likeliest token always may. 0 tries all tokens.
        skip_blank_prob: a frame whose blank is likelier than this counts as a certain blank. 1
            skips no frame.
        blank_penalty: amount to subtract from the blank's log-probability: fewer deletions, more
            insertions.
    """

    takes_fusion = True
    OPTIONS = (*Search.OPTIONS, "beam", "log_min_token", "log_skip_blank")

    def __init__(
        self,
        beam: int = 10,
        min_token_prob: float = 1e-4,
        skip_blank_prob: float = 0.999,
        fusion: Fusion | None = None,
        blank_penalty: float = 0.0,
    ) -> None:
        if beam < 1:
            raise ValueError(f"beam must be 1 or more, got {beam}")
        self.beam, self.fusion = beam, fusion or Both()
        self.ceiling = math.exp(self.fusion.ceiling)  # upper bound of the factors
        self.blank_penalty = checked_penalty(blank_penalty)
        self.log_min_token = log_of("min_token_prob", min_token_prob)
        self.log_skip_blank = log_of("skip_blank_prob", skip_blank_prob)

    def plus(self, fusion: Fusion) -> "BeamSearch":
        more = copy.copy(self)
        more.fusion = Both(self.fusion, fusion)
        more.ceiling = math.exp(more.fusion.ceiling)
        return more

    def identity(self) -> dict[str, str]:
        fusion = hashlib.sha256(self.fusion.identity().encode()).hexdigest()
        return {**super().identity(), "fusion": fusion}

    def partial(self, state: Any) -> Hypothesis:
        return backtrace(state.beam[0].path, state.stable)

    def stable(self, state: Any) -> tuple[int, ...]:
        tokens = [backtrace(each.path, state.stable).tokens for each in state.beam]
        first, last = min(tokens), max(tokens)  # all between share their common prefix
        pairs = enumerate(zip(first, last, strict=False))
        return first[: next((i for i, (a, b) in pairs if a != b), len(first))]

    def best(self, state: Any) -> Hypothesis:
        return self.nbest(state)[0].hypothesis

    def nbest(self, state: Any) -> list[Ranked]:
        ranked = [
            Ranked(
                backtrace(each.path, state.stable),
                self.score(state, each) + self.fusion.finish(each.context),
            )
            for each in state.beam
        ]
        return in_order(ranked, attrgetter("score"))

    def score(self, state: Any, sequence: Any) -> float:
        """Return the log score of a sequence of the beam if the stream goes on."""
        raise NotImplementedError


def in_order(items: Iterable[T], score: Callable[[T], float]) -> list[T]:
    """Sort by a log score, the highest first; equal scores but for rounding keep their order.

    A score that is at most LOG_TIE below the next higher one shares its place.
    """
    # Rounded scores could fall on both sides of a rounding's edge though they are equal. Gaps leave
    # the order uncertain only where two scores really differ, by LOG_TIE to within rounding errors.
    items = [*items]
    scores = [*map(score, items)]
    falling = sorted(range(len(items)), key=scores.__getitem__, reverse=True)
    apart = (scores[a] - scores[b] > LOG_TIE for a, b in pairwise(falling))
    places = accumulate(apart, initial=0)
    return [items[i] for _, i in sorted(zip(places, falling, strict=False))]


def is_due(before: int, frame: int) -> bool:
    """Return whether a step from frame `before` to `frame` has to search the stable prefix."""
    return frame // STABLE_FRAMES > before // STABLE_FRAMES


def log_of(name: str, share: float) -> float:
    """Return the logarithm of an argument; ValueError if it is not between 0 and 1."""
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"{name} must be between 0 and 1, got {share}")
    return log(share)


def log(share: float) -> float:
    return math.log(share) if share > 0.0 else -math.inf
