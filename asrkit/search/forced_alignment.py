"""Forced alignment: the times of the tokens of a known text.

With a transducer, a path through the text's lattice writes every token in some frame and leaves
each frame with a blank, as in training; the limit of labels in a frame, which searches have, does
not apply.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from asrkit.errors import UserError
from asrkit.search.base import NOTHING, CtcSearch, Hypothesis
from asrkit.search.transducer_greedy import TransducerGreedySearch, extended

LEAST = -1e30  # log-probability of impossible labels; a path may use them if it must
BLOCK = 1 << 22  # logits computed at once: 16 MB in float32
MOST_CELLS = 1 << 23  # frames times tokens: about a minute on one core, and 0.2 GB


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

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens

    def start(self) -> AlignmentState:
        return AlignmentState()

    def step(self, state: AlignmentState, frames: Tensor) -> AlignmentState:
        return AlignmentState((*state.frames, self.readable(frames)), self.quiet(frames))

    def partial(self, state: AlignmentState) -> Hypothesis:
        return NOTHING

    def best(self, state: AlignmentState) -> Hypothesis:
        """Return the likeliest path.

        Raises:
            AlignmentError: if the tokens need more frames than the stream has.
        """
        hypothesis = self.align(torch.cat(state.frames)) if state.frames else None
        if hypothesis is None:
            raise AlignmentError(
                f"the text is too long for the audio: its {len(self.tokens)} tokens do not fit "
                f"into {sum(map(len, state.frames))} frames"
            )
        return hypothesis

    def align(self, frames: Tensor) -> Hypothesis | None:
        """Return the likeliest path through all frames of the stream, (E, V).

        The result is None if the tokens need more than E frames, or a frame is not finite.
        """
        if frames.isnan().any():
            return None
        if not self.tokens:
            return NOTHING
        if len(self.tokens) > len(frames):
            return None
        path = ctc_path(frames.float().numpy(force=True), np.array(self.tokens), self.blank)
        if path is None:
            return None
        states = 2 * np.arange(len(self.tokens)) + 1
        starts = np.searchsorted(path, states).tolist()
        ends = np.searchsorted(path, states, side="right").tolist()
        confidences = (
            float(frames[start:end, token].max().exp())
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


class TransducerAlignment(ForcedAlignment):
    """A search for the times of a known text, with a transducer's emissions (E, D).

    Args:
        head: transducer head with all methods, in eval mode.
        tokens: tokens (U,), without blanks.
    """

    def __init__(self, head: Any, tokens: list[int]) -> None:
        self.head, self.tokens = head, tokens

    def readable(self, frames: Tensor) -> Tensor:
        return frames

    def quiet(self, frames: Tensor) -> tuple[bool, ...]:
        return TransducerGreedySearch(self.head).quiet(frames)

    @torch.inference_mode()
    def align(self, frames: Tensor) -> Hypothesis | None:
        """Return the likeliest path; None without a frame, or for logits that are not finite.

        Raises:
            AlignmentError: if the lattice of frames and tokens is too large.
        """
        if not self.tokens:
            return NOTHING
        if len(frames) * (len(self.tokens) + 1) > MOST_CELLS:
            raise AlignmentError(
                f"forced alignment with a transducer takes at most {MOST_CELLS} pairs of a frame "
                f"and a token, got {len(frames)} frames and {len(self.tokens)} tokens: align "
                "shorter recordings"
            )
        if not len(frames):
            return None
        blanks, labels = self.lattice(frames)
        if not (np.isfinite(blanks).all() and np.isfinite(labels).all()):
            return None
        places = zip(self.tokens, transducer_path(blanks, labels), strict=True)
        written = [(token, at, math.exp(labels[at, i])) for i, (token, at) in enumerate(places)]
        return extended(NOTHING, written, 0)

    def lattice(self, frames: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return log-probabilities in each frame after each number of tokens, float64.

        Returns:
            Those of the blank (E, U + 1), and those of the next token (E, U).
        """
        ids = torch.tensor(self.tokens, device=frames.device)
        predicted = self.head.outputs(ids[None])[0]  # (U + 1, J)
        blanks, labels = [], []
        size = max(1, BLOCK // (len(predicted) * self.head.vocab_size))
        for part in self.head.project(frames).split(size):
            logits = self.head.join(part[:, None], predicted)  # (e, U + 1, V)
            log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(2)
            blanks.append(log_probs[:, :, self.blank].double())
            after = ids[None, :, None].expand(len(part), -1, 1)
            labels.append(log_probs[:, :-1].gather(2, after)[:, :, 0].double())
        return torch.cat(blanks).numpy(force=True), torch.cat(labels).numpy(force=True)


def transducer_path(blanks: np.ndarray, labels: np.ndarray) -> list[int]:
    """Return the frame of each token on the Viterbi path.

    Among equally likely paths, tokens come late.

    Args:
        blanks: log-probabilities (E, U + 1) of the blank in frame e after u tokens.
        labels: log-probabilities (E, U) of token u + 1 there.
    """
    scores = np.full(blanks.shape[1], -np.inf)  # at the start of a frame, after u tokens
    scores[0] = 0.0
    by_label = np.zeros(blanks.shape, bool)  # whether token u is written in frame e
    for frame, (blank, label) in enumerate(zip(blanks, labels, strict=True)):
        # Tokens of one frame add up: a maximum of sums is a running maximum of differences.
        sums = np.concatenate([[0.0], np.cumsum(label)])
        apart = scores - sums
        highest = np.maximum.accumulate(apart)
        by_label[frame, 1:] = highest[:-1] >= apart[1:]
        scores = np.where(by_label[frame], highest + sums, scores) + blank
    path, frame = [], len(blanks) - 1
    for token in range(labels.shape[1], 0, -1):
        while not by_label[frame, token]:
            frame -= 1
        path.append(frame)
    return path[::-1]
