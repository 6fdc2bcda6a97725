"""Predictor and joiner of a transducer on any runtime, with NumPy's arrays for the searches."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from asrkit.model import JoinerStep, PredictorStep, TransducerHead

State = tuple[np.ndarray, ...]
Predictor = Callable[[np.ndarray, State], tuple[np.ndarray, State]]
Joiner = Callable[[np.ndarray, np.ndarray], np.ndarray]


class EagerParts:
    """Predictor and joiner of a head in PyTorch, on its device."""

    def __init__(self, head: TransducerHead) -> None:
        self.head = head
        self.vocab_size, self.max_symbols = head.vocab_size, head.max_symbols

    def start(self, batch_size: int) -> State:
        """Return the predictor's state before the initial blank."""
        return tuple(each.numpy(force=True) for each in self.head.start(batch_size))

    @torch.inference_mode()
    def predict(self, tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        """Return predictor outputs (B, J) for tokens (B,), and the state after them."""
        output, after = self.head.predict(
            self._tensor(tokens), tuple(self._tensor(each) for each in state)
        )
        return output.numpy(force=True), tuple(each.numpy(force=True) for each in after)

    @torch.inference_mode()
    def project(self, frames: np.ndarray) -> np.ndarray:
        """Return the joiner's share of frames: (…, D) -> (…, J)."""
        return self.head.project(self._tensor(frames)).numpy(force=True)

    @torch.inference_mode()
    def join(self, frames: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        """Return logits (…, V) of projected frames (…, J) and predictor outputs (…, J)."""
        return self.head.join(self._tensor(frames), self._tensor(predicted)).numpy(force=True)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.head.out.weight.device)


class TransducerParts(EagerParts):
    """Predictor and joiner on another runtime.

    The joiner projects the encoder frames itself: exports have no part for this alone.

    Args:
        predictor: computes what `PredictorStep` does.
        joiner: computes what `JoinerStep` does.
    """

    def __init__(self, head: TransducerHead, predictor: Predictor, joiner: Joiner) -> None:
        super().__init__(head)
        self.predictor, self.joiner = predictor, joiner

    def predict(self, tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        return self.predictor(tokens, state)

    def project(self, frames: np.ndarray) -> np.ndarray:
        """Return the frames: the joiner projects them."""
        return frames

    def join(self, frames: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        shape = np.broadcast_shapes(frames.shape[:-1], predicted.shape[:-1])
        rows = [
            np.broadcast_to(each, (*shape, each.shape[-1])).reshape(-1, each.shape[-1])
            for each in (frames, predicted)
        ]
        return self.joiner(*rows).reshape(*shape, self.vocab_size)


def part_steps(head: TransducerHead) -> list[nn.Module]:
    """Return predictor and joiner as networks of their own, in the order of PARTS."""
    return [PredictorStep(head).eval(), JoinerStep(head).eval()]
