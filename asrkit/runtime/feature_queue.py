"""A queue of the feature frames of a stream that a step may still need."""

from collections import deque

import torch
from torch import Tensor


class FeatureQueue:
    """Feature frames by their number in the stream, from the oldest that is still needed.

    Args:
        empty: (0, F) tensor of the frames' dtype.
        short: number of frames below which the remainder of a part is copied: a view would keep
            the whole part in memory.

    Attributes:
        start: number of the first frame.
        end: number of the next frame to append.
    """

    def __init__(self, empty: Tensor, short: int) -> None:
        self._empty, self._short = empty, short
        self.restore(empty)

    def restore(self, feats: Tensor, start: int = 0) -> None:
        """Replace all frames by (T, F), the first of which has the number `start`."""
        self._parts = deque([feats] if len(feats) else [])
        self.start, self.end = start, start + len(feats)

    def append(self, feats: Tensor) -> None:
        """Append (T, F)."""
        self._parts.append(feats)
        self.end += len(feats)

    def read(self, first: int, last: int) -> Tensor:
        """Return (T, F): frames first … last-1, or up to the end. A part's are a view."""
        parts, at = list[Tensor](), self.start
        for part in self._parts:
            if at >= last:
                break
            if at + len(part) > first:
                parts.append(part[max(0, first - at) : last - at])
            at += len(part)
        return parts[0] if len(parts) == 1 else torch.cat([self._empty, *parts])

    def drop(self, before: int) -> None:
        """Drop the frames before this number."""
        while self.start < min(before, self.end):
            part = self._parts.popleft()
            rest = part[before - self.start :]
            if len(rest):
                self._parts.appendleft(rest.clone() if len(rest) < self._short else rest)
            self.start += len(part) - len(rest)
