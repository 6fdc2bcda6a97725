"""A network ready to run, and all that streams on it share."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from asrkit.audio import Frontend
from asrkit.backends import Backend, Spec
from asrkit.model import EncoderState
from asrkit.runtime.vad import SpeechDetector


class Engine:
    """A network in one context, with its frontend. Never changes.

    Past in, past out: it keeps nothing of any stream, so any number of them share it.

    Args:
        backend: what runs the network.
        frontend: from samples to the network's features.
        detector: tells speech from silence in a stream's samples; None where nobody asks.

    Attributes:
        spec: the numbers of the network.
    """

    def __init__(
        self, backend: Backend, frontend: Frontend, detector: SpeechDetector | None = None
    ) -> None:
        self.backend, self.frontend, self.detector = backend, frontend, detector

    @property
    def spec(self) -> Spec:
        return self.backend.spec

    @torch.inference_mode()
    def features(self, samples: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Samples at 16 kHz (B, N) and those before them (B, P) -> (B, T, F), and the new past.

        The past of streams that have not begun is `frontend.start(B)`.
        """
        return self.frontend(samples, past)

    def init_state(self, batch_size: int) -> EncoderState:
        """The network's past of streams that have not begun."""
        return self.backend.init_state(batch_size)

    @torch.inference_mode()
    def step(
        self, feats: Tensor, lengths: Tensor, state: EncoderState
    ) -> tuple[list[Tensor], EncoderState]:
        """Return the head's frames of each stream, (E, V), and the new past.

        All steps of a stream but the last take whole chunks.

        Args:
            feats: (B, T, F).
            lengths: (B,) valid feature frames.
            state: past of the B streams.
        """
        output = self.backend.step(feats, lengths, state)
        rows = zip(output.frames, output.lengths.tolist(), strict=True)
        return [frames[:size] for frames, size in rows], output.state

    def step_of(
        self, feats: Sequence[Tensor], state: EncoderState
    ) -> tuple[list[Tensor], EncoderState]:
        """Return what `step` returns, for streams with (T, F) each of any lengths."""
        lengths = torch.tensor([len(each) for each in feats], device=feats[0].device)
        return self.step(pad_sequence([*feats], batch_first=True), lengths, state)
