"""Predictor and joiner of a transducer in exported files, for the searches."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

State = tuple[np.ndarray, ...]
Predictor = Callable[[np.ndarray, State], tuple[np.ndarray, State]]
Joiner = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(eq=False)
class TransducerParts:
    """Predictor and joiner on another runtime than PyTorch.

    The joiner projects the encoder frames itself: exports have no part for this alone.
    """

    start: Callable[[int], State]  # the predictor's state before the initial blank, for B streams
    predict: Predictor  # computes what `PredictorStep` does
    joiner: Joiner  # computes what `JoinerStep` does
    vocab_size: int  # V
    max_symbols: int  # most labels that a search writes in a frame

    def project(self, frames: np.ndarray) -> np.ndarray:
        """Return the frames: the joiner projects them."""
        return frames

    def join(self, frames: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        """Return logits (…, V) of frames (…, D) and predictor outputs (…, J)."""
        shape = np.broadcast_shapes(frames.shape[:-1], predicted.shape[:-1])
        rows = [
            np.broadcast_to(each, (*shape, each.shape[-1])).reshape(-1, each.shape[-1])
            for each in (frames, predicted)
        ]
        return self.joiner(*rows).reshape(*shape, self.vocab_size)
