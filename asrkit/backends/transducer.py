"""Predictor and joiner of a transducer on any runtime, for the searches."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from asrkit.model import JoinerStep, PredictorStep, TransducerHead

State = tuple[Tensor, ...]
Predictor = Callable[[Tensor, State], tuple[Tensor, State]]
Joiner = Callable[[Tensor, Tensor], Tensor]


class TransducerParts:
    """Predictor and joiner on a runtime. A search calls them in place of a head's methods.

    The joiner projects the encoder frames itself: exports have no part for this alone.

    Args:
        predictor: computes what `PredictorStep` does.
        joiner: computes what `JoinerStep` does.
    """

    def __init__(self, head: TransducerHead, predictor: Predictor, joiner: Joiner) -> None:
        self.head, self.start = head, head.start
        self.predict, self.joiner = predictor, joiner
        self.vocab_size, self.max_symbols = head.vocab_size, head.max_symbols

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
