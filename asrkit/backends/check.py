"""The comparison of two backends over streams, which every backend and every export passes."""

from collections.abc import Iterable, Sequence
from itertools import starmap
from typing import Any

import numpy as np

from asrkit.backends.backend import Backend, State, padded, restored, stored
from asrkit.backends.transducer import EagerParts, TransducerParts

TOLERANCE = 1e-4
HOUR_MS = 3_600_000
NUM_LABELS = 20  # labels that predictor and joiner are compared on

Pair = tuple[np.ndarray, np.ndarray]


def compare(
    backend: Backend, reference: Backend, feats: np.ndarray, sizes: Sequence[int]
) -> tuple[list[Pair], list[Pair]]:
    """Return the frames of two backends over the same streams; and their lengths and last states.

    The rows began now, an hour ago and a day ago, and have fewer valid frames from row to row. In
    full context, every step is a recording that begins at the first frame.

    Args:
        feats: (B, T, F), padded with zeros if the steps need more.
        sizes: encoder frames of each step, whole chunks.
    """
    spec, backends = reference.spec, (backend, reference)
    states = [aged(each.init_state(len(feats)), spec.rate.frame_ms) for each in backends]
    shares, start = 1 + np.arange(len(feats)), 0
    frames: list[Pair] = []
    others: list[Pair] = []
    for size in sizes:
        whole = spec.rate.factor * size + spec.ahead_frames
        part = feats[:, start : start + whole]
        lengths = part.shape[1] // shares
        part = padded(part, whole - part.shape[1])
        outputs = [
            each.step(part.astype(each.spec.dtype), lengths, state)
            for each, state in zip(backends, states, strict=True)
        ]
        frames.append((outputs[0].frames, outputs[1].frames))
        others.append((outputs[0].lengths, outputs[1].lengths))
        if not spec.context.full:
            states, start = [each.state for each in outputs], start + spec.rate.factor * size
    return frames, others if spec.context.full else [
        *others,
        *zip(*map(stored, states), strict=True),
    ]


def compare_parts(parts: TransducerParts) -> list[Pair]:
    """Return outputs and states of predictor and joiner, and the head's, alone and in a batch."""
    head, draw, pairs = EagerParts(parts.head), np.random.default_rng(0), list[Any]()
    width = parts.head.from_encoder.in_features
    for rows in (1, 3):
        state, exact = parts.start(rows), head.start(rows)
        for _ in range(NUM_LABELS):
            tokens = draw.integers(head.vocab_size, size=rows)
            frames = draw.normal(size=(rows, 4, width)).astype(np.float32)
            output, state = parts.predict(tokens, state)
            expected, exact = head.predict(tokens, exact)
            logits = parts.join(parts.project(frames), output[:, None])
            wanted = head.join(head.project(frames), expected[:, None])
            pairs += [(output, expected), (logits, wanted), *zip(state, exact, strict=True)]
    return pairs


def aged(state: State, frame_ms: int) -> State:
    """Age the rows of a state (B, …) at the same frame: now, an hour later, a day later, …

    Rounding of quantities that depend on a frame's number only shows there.
    """
    if not state:
        return state
    *others, position = stored(state)
    hours = np.resize([0, 1, 24], len(position))
    return restored([*others, position + hours * (HOUR_MS // frame_ms)], state)


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest absolute difference; infinite for other shapes or infinite numbers."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or not np.isfinite(a - b).all():
        return float("inf")
    return float(abs(a - b).max()) if a.size else 0.0


def largest_of(pairs: Iterable[Pair]) -> float:
    """Return the largest difference of all pairs."""
    return max(starmap(difference, pairs))


def rounding(frames: Sequence[Pair]) -> float:
    """Return the largest error of a label: root mean square, relative to its standard deviation.

    Args:
        frames: (B, E, V) of a backend and of eager, for each step. The result is infinite for
            other shapes, or numbers that are not finite.
    """
    if largest_of(frames) == float("inf"):
        return float("inf")
    rounded, exact = (np.concatenate(each, axis=1) for each in zip(*frames, strict=True))
    errors = np.square(rounded - exact).mean(axis=(0, 1))  # (V,)
    return float(np.sqrt(errors.max() / exact.var(axis=(0, 1)).mean()))
