"""Predictor and joiner of a transducer on any runtime, for the searches."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from asrkit.backends.tolerance import difference
from asrkit.model import JoinerStep, PredictorStep, TransducerHead

STEPS = 20  # labels that `largest_difference` appends

Predictor = Callable[[Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]
Joiner = Callable[[Tensor, Tensor], Tensor]


class TransducerParts:
    """Predictor and joiner on a runtime. A search calls them in place of a head's methods.

    The joiner projects the encoder frames itself: exports have no part for this alone.

    Args:
        predictor: computes what `PredictorStep` does.
        joiner: computes what `JoinerStep` does.
    """

    def __init__(self, head: TransducerHead, predictor: Predictor, joiner: Joiner) -> None:
        self.head, self.predictor, self.joiner = head, predictor, joiner
        self.vocab_size, self.max_symbols = head.vocab_size, head.max_symbols

    def start(self, batch_size: int) -> tuple[Tensor, ...]:
        return self.head.start(batch_size)

    def predict(
        self, tokens: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        output, after = self.predictor(tokens, [*state])
        return output, tuple(after)

    def project(self, frames: Tensor) -> Tensor:
        """Return the frames: the joiner projects them."""
        return frames

    def join(self, frames: Tensor, predicted: Tensor) -> Tensor:
        """Return logits (…, V) of encoder frames (…, D) and predictor outputs (…, J)."""
        shape = torch.broadcast_shapes(frames.shape[:-1], predicted.shape[:-1])
        rows = [
            each.expand(*shape, each.size(-1)).reshape(-1, each.size(-1))
            for each in (frames, predicted)
        ]
        return self.joiner(*rows).reshape(*shape, self.vocab_size)


def part_steps(head: TransducerHead) -> list[nn.Module]:
    """Return predictor and joiner as networks of their own, in the order of PARTS."""
    return [PredictorStep(head).eval(), JoinerStep(head).eval()]


@torch.inference_mode()
def largest_difference(parts: TransducerParts) -> float:
    """Return the largest difference from the head over labels and frames, alone and in a batch."""
    head, draw = parts.head, torch.Generator().manual_seed(0)
    worst = 0.0
    for rows in (1, 3):
        theirs: Any = head.start(rows)
        ours = parts.start(rows)
        for _ in range(STEPS):
            tokens = torch.randint(head.vocab_size, (rows,), generator=draw)
            predicted, ours = parts.predict(tokens, ours)
            expected, theirs = head.predict(tokens, theirs)
            frames = torch.randn(rows, 4, head.from_encoder.in_features, generator=draw)
            logits = parts.join(parts.project(frames), predicted[:, None])
            right = head.join(head.project(frames), expected[:, None])
            pairs = zip((predicted, *ours, logits), (expected, *theirs, right), strict=True)
            worst = max(worst, *(difference(a, b) for a, b in pairs))
    return worst
