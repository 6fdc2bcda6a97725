"""The comparison of two backends over streams, which every backend and every export passes."""

from collections.abc import Iterable, Sequence
from itertools import starmap
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from asrkit.backends.backend import Backend
from asrkit.backends.transducer import TransducerParts

TOLERANCE = 1e-4
HOUR_MS = 3_600_000
NUM_LABELS = 20  # labels that predictor and joiner are compared on

Pair = tuple[Tensor, Tensor]


@torch.inference_mode()
def compare(
    backend: Backend, reference: Backend, feats: Tensor, sizes: Sequence[int]
) -> tuple[list[Pair], list[Pair]]:
    """Return the frames of two backends over the same streams; and their lengths and last states.

    The rows began now, an hour ago and a day ago, and have fewer valid frames from row to row. In
    full context, every step is a recording that begins at the first frame.

    Args:
        feats: (B, T, F), padded with zeros if the steps need more.
        sizes: encoder frames of each step, whole chunks.
    """
    spec, backends = reference.spec, (backend, reference)
    states: list[Any] = [aged(each.init_state(len(feats)), spec.rate.frame_ms) for each in backends]
    shares, start = 1 + torch.arange(len(feats), device=spec.device), 0
    frames: list[Pair] = []
    others: list[Pair] = []
    for size in sizes:
        whole = spec.rate.factor * size + spec.ahead_frames
        part = feats[:, start : start + whole]
        lengths = part.size(1) // shares
        part = functional.pad(part, (0, 0, 0, whole - part.size(1)))
        outputs = [
            each.step(part.to(spec.device, each.spec.dtype), lengths, state)
            for each, state in zip(backends, states, strict=True)
        ]
        frames.append((outputs[0].frames, outputs[1].frames))
        others.append((outputs[0].lengths, outputs[1].lengths))
        if not spec.context.full:
            states, start = [each.state for each in outputs], start + spec.rate.factor * size
    return frames, others if spec.context.full else [*others, *zip(*states, strict=True)]


@torch.inference_mode()
def compare_parts(parts: TransducerParts) -> list[Pair]:
    """Return outputs and states of predictor and joiner, and the head's, alone and in a batch."""
    head, draw, pairs = parts.head, torch.Generator().manual_seed(0), []
    for rows in (1, 3):
        state, exact = parts.start(rows), head.start(rows)
        for _ in range(NUM_LABELS):
            tokens = torch.randint(head.vocab_size, (rows,), generator=draw)
            frames = torch.randn(rows, 4, head.from_encoder.in_features, generator=draw)
            output, state = parts.predict(tokens, state)
            expected, exact = head.predict(tokens, exact)
            logits = parts.join(parts.project(frames), output[:, None])
            wanted = head.join(head.project(frames), expected[:, None])
            pairs += [(output, expected), (logits, wanted), *zip(state, exact, strict=True)]
    return pairs


def aged(state: Any, frame_ms: int) -> Any:
    """Age the rows of a state (B, …) at the same frame: now, an hour later, a day later, …

    Rounding of quantities that depend on a frame's number only shows there.
    """
    position = state.position
    hours = torch.tensor([0, 1, 24], device=position.device)
    rows = torch.arange(position.size(0), device=position.device) % len(hours)
    return state._replace(position=position + hours[rows] * (HOUR_MS // frame_ms))


def difference(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference; infinite for other shapes or infinite numbers."""
    if a.shape != b.shape or not torch.isfinite(a - b).all():
        return float("inf")
    return float((a - b).abs().max()) if a.numel() else 0.0


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
    rounded, exact = (torch.cat(each, dim=1).flatten(0, 1) for each in zip(*frames, strict=True))
    errors = (rounded - exact).square().mean(dim=0)  # (V,)
    return float((errors.max() / exact.var(dim=0).mean()).sqrt())
