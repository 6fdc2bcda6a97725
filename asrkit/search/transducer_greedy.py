"""Greedy search for transducers: the likeliest labels of each frame until the blank."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from asrkit.search.base import NOTHING, Hypothesis, Search, checked_penalty, log_softmax

WINDOW = 8  # frames of each stream in one call of the joiner


class Transducer(Protocol):
    """Predictor and joiner of a transducer, which a search calls. Arrays are on the CPU."""

    vocab_size: int
    max_symbols: int

    def start(self, batch_size: int) -> tuple[np.ndarray, ...]:
        """Return the predictor's state before the initial blank."""

    def predict(
        self, tokens: np.ndarray, state: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Return predictor outputs (B, J) for tokens (B,), and the state after them."""

    def project(self, frames: np.ndarray) -> np.ndarray:
        """Return the joiner's share of frames: (…, D) -> (…, J)."""

    def join(self, frames: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        """Return logits (…, V) of projected frames (…, J) and predictor outputs (…, J)."""


class TransducerState(NamedTuple):
    """A hypothesis, and the predictor's past: its state, and its output after the last label."""

    hypothesis: Hypothesis
    frame: int  # number of frames processed
    predictor: tuple[np.ndarray, ...]  # each (1, …)
    output: np.ndarray  # (1, J)
    quiet: tuple[bool, ...] = ()
    ends: tuple[float, ...] = ()


class TransducerGreedySearch(Search):
    """Time-synchronous greedy search: a frame's labels are written until the blank is likelier.

    Nothing happens at the end of a chunk or of a stream, so streaming equals offline.

    Args:
        head: predictor and joiner; `bound` sets them if they are None.
        blank_penalty: amount to subtract from the blank's log-probability: fewer deletions, more
            insertions.
    """

    Value = TransducerState

    def __init__(self, head: Transducer | None = None, blank_penalty: float = 0.0) -> None:
        self.head, self.blank_penalty = head, checked_penalty(blank_penalty)

    def start(self) -> TransducerState:
        output, state = self.head.predict(np.array([self.blank]), self.head.start(1))
        return TransducerState(NOTHING, 0, state, output)

    def step_all(
        self, states: Sequence[TransducerState], frames: Sequence[np.ndarray]
    ) -> list[TransducerState]:
        """Return the states of B streams after (E, D) more frames; E may differ between streams.

        Label-looping (Bataev et al. 2024): one call of the joiner finds the next label of every
        stream, in any frame, and one call of the predictor appends all these labels.
        """
        sizes = [len(each) for each in frames]
        projected = self.head.project(np.concatenate([*frames]))
        width = max(sizes) + WINDOW
        rows = np.zeros((len(sizes), width, projected.shape[1]), projected.dtype)
        rows[np.arange(width) < np.array(sizes)[:, None]] = projected  # (B, E + WINDOW, J)
        output = np.concatenate([state.output for state in states])
        pasts = zip(*(state.predictor for state in states), strict=True)
        predictor = tuple(np.concatenate(each) for each in pasts)
        written: list[list[tuple[int, int, float]]] = [[] for _ in states]
        places, counts = [0] * len(states), [0] * len(states)  # frame, and labels in it
        while active := [i for i, place in enumerate(places) if place < sizes[i]]:
            at = np.array([places[i] for i in active])
            window = rows[np.array(active)[:, None], at[:, None] + np.arange(WINDOW)]
            new_labels: list[tuple[int, int]] = []
            likeliest = zip(active, *self.likeliest(window, output[active]), strict=True)
            for i, log_probs, labels in likeliest:
                left = sizes[i] - places[i]
                label = first_label(log_probs, labels, left, self.blank)
                if label is None:
                    places[i], counts[i] = places[i] + min(WINDOW, left), 0
                    continue
                ahead, token, log_prob = label
                counts[i] = counts[i] + 1 if ahead == 0 else 1
                places[i] += ahead
                written[i].append((token, places[i], math.exp(log_prob)))
                new_labels.append((i, token))
                if counts[i] == self.head.max_symbols:
                    places[i], counts[i] = places[i] + 1, 0
            if new_labels:
                moved, tokens = np.array(new_labels).T
                past = tuple(each[moved] for each in predictor)
                output[moved], past = self.head.predict(tokens, past)
                for each, after in zip(predictor, past, strict=True):
                    each[moved] = after
        return [
            TransducerState(
                extended(state.hypothesis, written[i], state.frame),
                state.frame + sizes[i],
                # A view would keep the predictor states of all streams in memory.
                tuple(each[i : i + 1].copy() for each in predictor),
                output[i : i + 1].copy(),
                *self.flags(written[i], sizes[i]),
            )
            for i, state in enumerate(states)
        ]

    def flags(
        self, written: Sequence[tuple[int, int, float]], size: int
    ) -> tuple[tuple[bool, ...], tuple[float, ...]]:
        """Return `quiet` and `ends` of `size` frames with these labels, frames and confidences."""
        spoken = {frame for token, frame, _ in written if token != self.end_of_turn}
        ends = {frame: prob for token, frame, prob in written if token == self.end_of_turn}
        frames = range(size)
        return tuple(i not in spoken for i in frames), tuple(ends.get(i, 0.0) for i in frames)

    def likeliest(
        self, window: np.ndarray, output: np.ndarray
    ) -> tuple[list[list[float]], list[list[int]]]:
        """Return each frame's highest log-probability and label: (B, W, J), (B, J) -> (B, W)."""
        logits = self.head.join(window, output[:, None])
        if self.blank_penalty:
            logits[..., self.blank] -= self.blank_penalty
        log_probs = log_softmax(logits)
        return log_probs.max(axis=2).tolist(), log_probs.argmax(axis=2).tolist()


def first_label(
    log_probs: Sequence[float], labels: Sequence[int], size: int, blank: int
) -> tuple[int, int, float] | None:
    """Return the first label in `size` frames: its frame, its id, its log-probability."""
    pairs = enumerate(zip(labels[:size], log_probs, strict=False))
    return next(
        ((frame, label, log_prob) for frame, (label, log_prob) in pairs if label != blank), None
    )


def extended(
    hypothesis: Hypothesis, written: Sequence[tuple[int, int, float]], first: int
) -> Hypothesis:
    """Append labels to a hypothesis. A label ends where the next label of the same frame begins.

    Args:
        written: labels with their frames and confidences.
    """
    starts = [first + frame for _, frame, _ in written]
    ends = [a if a == b else a + 1 for a, b in zip(starts, [*starts[1:], -1], strict=False)]
    return Hypothesis(
        hypothesis.tokens + tuple(token for token, _, _ in written),
        hypothesis.starts + tuple(starts),
        hypothesis.ends + tuple(ends),
        hypothesis.confidences + tuple(confidence for *_, confidence in written),
    )
