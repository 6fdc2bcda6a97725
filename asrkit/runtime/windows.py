"""Full context of long recordings, in windows: networks are not trained on longer ones.

A recording of at most LONGEST_MS is one window. In a longer recording the network sees LONGEST_MS
at a time, and LEFT_MS before that. The text of a window ends in the middle of the longest pause in
its second half, where the next text begins. Windows depend only on the samples, not on packets.
"""

import functools
import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from asrkit.model import FrameRate
from asrkit.runtime.endpoint import frames_of
from asrkit.runtime.engine import Engine
from asrkit.runtime.second_pass import LEFT_MS, LONGEST_MS, middle_of_pause

logger = logging.getLogger("asrkit")

Quiet = Callable[[Tensor], Sequence[bool]]  # the head's (E, V) -> whether each frame is a pause


class Windows:
    """The windows of a stream in full context, one after another.

    Args:
        rate: relation of feature frames to encoder frames.
        quiet: finds the frames without speech.
    """

    def __init__(self, rate: FrameRate, quiet: Quiet) -> None:
        self._rate, self._quiet = rate, quiet
        self._left, self._longest = (
            frames_of(LEFT_MS, rate.frame_ms),
            frames_of(LONGEST_MS, rate.frame_ms),
        )

    def before(self, start: int) -> int:
        """Return the number of encoder frames that a window sees before its text at `start`."""
        return min(self._left, start)

    def whole(self, start: int, waiting: int) -> int:
        """Return the feature frames of a window whose text begins at `start`; 0 for the last one.

        Args:
            start: encoder frames of the stream before the text of the window.
            waiting: number of available feature frames, from those before the text on.
        """
        size = self.before(start) + self._longest
        if self._rate.num_frames(waiting) <= size:
            return 0
        report_windows()
        return self._rate.factor * size + self._rate.lookahead

    def text(self, frames: Tensor, start: int, last: bool) -> Tensor:
        """Return the frames of a window's text from all frames that it sees: (E, V) -> (E', V)."""
        frames = frames[self.before(start) :]
        if last:
            return frames
        return frames[: middle_of_pause(self._quiet(frames), self._longest, self._left)]

    def frames(self, engine: Engine, feats: Tensor) -> Tensor:
        """Return the head's frames of a whole recording: (T, F) -> (E, V)."""
        parts, start, last = [], 0, False
        while not last:
            rest = feats[self._rate.factor * (start - self.before(start)) :]
            size = self.whole(start, len(rest))
            last = size == 0
            (found,), _ = engine.step_of([rest[:size] if size else rest], engine.init_state(1))
            parts.append(self.text(found, start, last))
            start += len(parts[-1])
        return torch.cat(parts)


def frames_of_rows(engine: Engine, feats: Tensor, lengths: Tensor, quiet: Quiet) -> list[Tensor]:
    """Return the head's frames (E, V) of whole recordings, in one step if possible.

    Args:
        engine: network in any context.
        feats: (B, T, F).
        lengths: (B,) valid frames.
        quiet: finds the frames without speech, where a window may end.
    """

    def in_one_step(feats: Tensor, lengths: Tensor) -> list[Tensor]:
        ahead = spec.rate.factor * spec.context.right  # appended: right context is not returned
        feats = functional.pad(feats, (0, 0, 0, ahead))
        return engine.step(feats, lengths, engine.init_state(len(feats)))[0]

    spec = engine.spec
    if not spec.context.full:
        return in_one_step(feats, lengths)
    windows, sizes = Windows(spec.rate, quiet), lengths.tolist()
    short = [i for i, size in enumerate(sizes) if not windows.whole(0, size)]
    found: dict[int, Tensor] = {}
    if short:
        most = max(sizes[i] for i in short)
        found = dict(zip(short, in_one_step(feats[short, :most], lengths[short]), strict=True))
    return [
        found[i] if i in found else windows.frames(engine, feats[i, :size])
        for i, size in enumerate(sizes)
    ]


@functools.cache  # once per process
def report_windows() -> None:
    """Log that a recording is too long for one window."""
    logger.warning(
        "full context: recordings of more than %d s are recognised in parts of at most %d s that "
        "end in pauses", LONGEST_MS // 1000, LONGEST_MS // 1000,
    )  # fmt: skip
