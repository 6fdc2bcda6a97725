"""Forced alignment: the times of the tokens of a known text."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from asrkit.errors import UserError
from asrkit.search.base import NOTHING, Hypothesis
from asrkit.search.ctc import CtcSearch

LEAST = -1e30  # log-probability of impossible labels; a path may use them if it must


class AlignmentError(UserError):
    """An error for a text that is too long for its audio."""


class AlignmentState(NamedTuple):
    frames: tuple[Tensor, ...] = ()  # (E, V) of each step
    quiet: tuple[bool, ...] = ()
    ends: tuple[float, ...] = ()


class ForcedAlignment(CtcSearch):
    """A search for the times of a known text; results exist only at the end of the stream.

    Args:
        tokens: tokens (U,), without blanks.
    """

    def __init__(self, tokens: list[int], blank: int = 0) -> None:
        self.tokens, self.blank = tokens, blank

    def start(self) -> AlignmentState:
        return AlignmentState()

    def step(self, state: AlignmentState, frames: Tensor) -> AlignmentState:
        parts = (*state.frames, self.readable(frames))
        return AlignmentState(parts, self.quiet(frames), self.ends(frames))

    def partial(self, state: AlignmentState) -> Hypothesis:
        return NOTHING

    def best(self, state: AlignmentState) -> Hypothesis:
        """Return the likeliest path.

        Raises:
            AlignmentError: if the tokens need more frames than the stream has.
        """
        found = self.align(torch.cat(state.frames)) if state.frames else None
        if found is None:
            raise AlignmentError(
                f"the text is too long for the audio: its {len(self.tokens)} tokens do not fit "
                f"into {sum(map(len, state.frames))} frames"
            )
        return found

    def align(self, frames: Tensor) -> Hypothesis | None:
        """Return the likeliest path; None if all frames (E, V) are too few for the tokens."""
        return align(frames, self.tokens, self.blank)


def align(log_probs: Tensor, tokens: list[int], blank: int = 0) -> Hypothesis | None:
    """Find the likeliest CTC path of these tokens (forced alignment).

    Args:
        log_probs: log-probabilities (E, V).
        tokens: tokens (U,), without blanks.

    Returns:
        The tokens with their frames; None if they need more than E frames, or a frame has NaN.
    """
    if log_probs.isnan().any():
        return None
    if not tokens:
        return NOTHING
    if len(tokens) > len(log_probs):
        return None
    path = likeliest_path(log_probs.float().numpy(force=True), np.array(tokens), blank)
    if path is None:
        return None
    states = 2 * np.arange(len(tokens)) + 1
    starts = np.searchsorted(path, states).tolist()
    ends = np.searchsorted(path, states, side="right").tolist()
    return Hypothesis(
        tuple(tokens),
        tuple(starts),
        tuple(ends),
        tuple(
            float(log_probs[start:end, token].max().exp())
            for start, end, token in zip(starts, ends, tokens, strict=True)
        ),
    )


def likeliest_path(log_probs: np.ndarray, tokens: np.ndarray, blank: int) -> np.ndarray | None:
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
