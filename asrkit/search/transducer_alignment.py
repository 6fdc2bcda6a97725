"""Forced alignment with a transducer: the likeliest path of a known text through its lattice.

A path writes every token in some frame and leaves each frame with a blank, as in training; the
limit of labels in a frame, which searches have, does not apply.
"""

import math
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from asrkit.search.base import NOTHING, Hypothesis
from asrkit.search.forced_alignment import AlignmentError, ForcedAlignment
from asrkit.search.transducer_greedy import Transducer, TransducerGreedySearch, extended

BLOCK = 1 << 22  # logits computed at once: 16 MB in float32
MOST_CELLS = 1 << 23  # frames times tokens: about a minute on one core, and 0.2 GB


class Readable(Transducer, Protocol):
    """A transducer head that reads a known text at once."""

    def outputs(self, tokens: Tensor) -> Tensor:
        """Return `predict`'s outputs after the initial blank and each token.

        (B, U) -> (B, U + 1, J)
        """


class TransducerAlignment(ForcedAlignment):
    """A search for the times of a known text; results exist only at the end of the stream.

    Args:
        head: predictor and joiner, in eval mode.
        tokens: tokens (U,), without blanks.
    """

    def __init__(self, head: Readable, tokens: list[int], blank: int = 0) -> None:
        super().__init__(tokens, blank)
        self.head = head

    def readable(self, frames: Tensor) -> Tensor:
        """Return the frames, which are not log-probabilities."""
        return frames

    def quiet(self, frames: Tensor) -> tuple[bool, ...]:
        return TransducerGreedySearch(self.head, self.blank).quiet(frames)

    def ends(self, frames: Tensor) -> tuple[float, ...]:
        return ()

    def align(self, frames: Tensor) -> Hypothesis | None:
        return align(self.head, frames, self.tokens, self.blank)


@torch.inference_mode()
def align(head: Readable, frames: Tensor, tokens: list[int], blank: int = 0) -> Hypothesis | None:
    """Find the likeliest alignment of these tokens.

    Args:
        head: predictor and joiner, in eval mode.
        frames: frames of the head (E, D).
        tokens: tokens (U,), without blanks.

    Returns:
        The tokens with their frames; None without a frame, or for logits that are not finite.

    Raises:
        AlignmentError: if the lattice of frames and tokens is too large.
    """
    if not tokens:
        return NOTHING
    if len(frames) * (len(tokens) + 1) > MOST_CELLS:
        raise AlignmentError(
            f"forced alignment with a transducer takes at most {MOST_CELLS} pairs of a frame and a "
            f"token, got {len(frames)} frames and {len(tokens)} tokens: align shorter recordings"
        )
    if not len(frames):
        return None
    blanks, labels = lattice(head, frames, tokens, blank)
    if not (np.isfinite(blanks).all() and np.isfinite(labels).all()):
        return None
    path = likeliest_path(blanks, labels)
    written = [
        (token, frame, math.exp(labels[frame, i]))
        for i, (token, frame) in enumerate(zip(tokens, path, strict=True))
    ]
    return extended(NOTHING, written, 0)


def lattice(
    head: Readable, frames: Tensor, tokens: list[int], blank: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return log-probabilities in each frame after each number of tokens, float64.

    Returns:
        Those of the blank (E, U + 1), and those of the next token (E, U).
    """
    ids = torch.tensor(tokens, device=frames.device)
    predicted = head.outputs(ids[None])[0]  # (U + 1, J)
    blanks, labels = [], []
    size = max(1, BLOCK // (len(predicted) * head.vocab_size))
    for part in head.project(frames).split(size):
        logits = head.join(part[:, None], predicted)  # (e, U + 1, V)
        log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(2)
        blanks.append(log_probs[:, :, blank].double())
        after = ids[None, :, None].expand(len(part), -1, 1)
        labels.append(log_probs[:, :-1].gather(2, after)[:, :, 0].double())
    return torch.cat(blanks).numpy(force=True), torch.cat(labels).numpy(force=True)


def likeliest_path(blanks: np.ndarray, labels: np.ndarray) -> list[int]:
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
