"""Predictor and joiner of a transducer in exported files, for the searches."""

from collections.abc import Callable

import numpy as np

State = tuple[np.ndarray, ...]
Predictor = Callable[[np.ndarray, State], tuple[np.ndarray, State]]
Joiner = Callable[[np.ndarray, np.ndarray], np.ndarray]


class TransducerParts:
    """Predictor and joiner on another runtime than PyTorch.

    The joiner projects the encoder frames itself: exports have no part for this alone.

    Args:
        start: returns the predictor's state before the initial blank, for a number of streams.
        predictor: computes what `PredictorStep` does.
        joiner: computes what `JoinerStep` does.
        vocab_size: V.
        max_symbols: most labels that a search writes in a frame.
    """

    def __init__(
        self, start: Callable[[int], State], predictor: Predictor, joiner: Joiner,
        vocab_size: int, max_symbols: int,
    ) -> None:  # fmt: skip
        self.start, self.predict, self.joiner = start, predictor, joiner
        self.vocab_size, self.max_symbols = vocab_size, max_symbols

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
