"""Forced alignment: the times of the tokens of a known text."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from asrkit.errors import UserError
from asrkit.search.base import NOTHING, CtcSearch, Hypothesis

LEAST = -1e30  # log-probability of impossible labels; a path may use them if it must


class AlignmentError(UserError):
    """An error for a text that is too long for its audio."""


class AlignmentState(NamedTuple):
    frames: tuple[np.ndarray, ...] = ()  # (E, V) of each step
    quiet: tuple[bool, ...] = ()
    ends: tuple[float, ...] = ()


class ForcedAlignment(CtcSearch):
    """A search for the times of a known text; results exist only at the end of the stream.

    Args:
        tokens: tokens (U,), without blanks.
        layer: CTC layer of a transducer: emissions (E, D) to log-probabilities (E, V).
    """

    def __init__(
        self, tokens: list[int], layer: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> None:
        self.tokens, self.layer = tokens, layer

    def readable(self, frames: np.ndarray) -> np.ndarray:
        return super().readable(frames if self.layer is None else self.layer(frames))

    def start(self) -> AlignmentState:
        return AlignmentState()

    def step(self, state: AlignmentState, frames: np.ndarray) -> AlignmentState:
        return AlignmentState((*state.frames, self.readable(frames)), self.quiet(frames))

    def partial(self, state: AlignmentState) -> Hypothesis:
        return NOTHING

    def best(self, state: AlignmentState) -> Hypothesis:
        """Return the likeliest path.

        Raises:
            AlignmentError: if the tokens need more frames than the stream has, or a frame is NaN.
        """
        hypothesis = self.align(np.concatenate(state.frames)) if state.frames else None
        if any(np.isnan(each).any() for each in state.frames):
            raise AlignmentError(
                "the network returned NaN for this audio, so a text has no times: use --device cpu,"
                " and audio in [-1, 1]"
            )
        if hypothesis is None:
            raise AlignmentError(
                f"the text is too long for the audio: its {len(self.tokens)} tokens do not fit "
                f"into {sum(map(len, state.frames))} frames"
            )
        return hypothesis

    def align(self, frames: np.ndarray) -> Hypothesis | None:
        """Return the likeliest path through all frames of the stream, (E, V).

        The result is None if the tokens need more than E frames, or a frame is not finite.
        """
        if np.isnan(frames).any():
            return None
        if not self.tokens:
            return NOTHING
        if len(self.tokens) > len(frames):
            return None
        path = ctc_path(frames.astype(np.float32), np.array(self.tokens), self.blank)
        if path is None:
            return None
        states = 2 * np.arange(len(self.tokens)) + 1
        starts = np.searchsorted(path, states).tolist()
        ends = np.searchsorted(path, states, side="right").tolist()
        confidences = (
            math.exp(frames[start:end, token].max())
            for start, end, token in zip(starts, ends, self.tokens, strict=True)
        )
        return Hypothesis(tuple(self.tokens), tuple(starts), tuple(ends), tuple(confidences))


def ctc_path(log_probs: np.ndarray, tokens: np.ndarray, blank: int) -> np.ndarray | None:
    """Return the state of each frame on the Viterbi path: token u is state 2u + 1, blanks are even.

    Among equally likely paths, the one that stays longest in the later state is returned.

    Args:
        log_probs: log-probabilities (E, V), float32, E ≥ U.
        tokens: tokens (U,), U ≥ 1.

    Returns:
        States (E,), never decreasing, with every token; None if E frames are too few for the blanks
        between equal tokens.
    """
    labels = np.full(2 * len(tokens) + 1, blank)  # (S,), labels of the states
    labels[1::2] = tokens
    # A state follows itself, the previous state or, skipping a blank, a different token.
    barred = np.full(len(labels), -np.inf, np.float32)
    barred[3::2][tokens[1:] != tokens[:-1]] = 0.0
    log_probs = log_probs.clip(LEAST)
    scores = np.full(2 + len(labels), -np.inf, np.float32)  # the first two states do not exist
    scores[2:4] = log_probs[0].take(labels[:2])
    steps = np.zeros((len(log_probs), len(labels)), np.int8)  # number of states to go back
    for frame in range(1, len(log_probs)):
        same, before, skipping = scores[2:], scores[1:-1], scores[:-2] + barred
        best = np.maximum(same, before)
        steps[frame] = before > same
        np.putmask(steps[frame], skipping > best, 2)
        scores[2:] = np.maximum(best, skipping) + log_probs[frame].take(labels)
    if not np.isfinite(scores[-2:]).any():
        return None
    state = len(labels) - (1 if scores[-1] > scores[-2] else 2)
    path = np.empty(len(log_probs), np.int64)
    for frame in range(len(log_probs) - 1, -1, -1):
        path[frame] = state
        state -= int(steps[frame, state])
    return path
