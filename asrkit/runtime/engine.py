"""A backend with its frontend and speech detector, shared by all streams."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from asrkit.audio import HOP, Fbank, Frontend
from asrkit.audio.resampler import needed
from asrkit.backends import Backend, Spec
from asrkit.model import EncoderState
from asrkit.runtime.vad import SpeechDetector


class Engine:
    """A backend with its frontend and speech detector, shared by all streams. Never changes.

    Methods receive the past of a stream and return the new past; an engine stores no stream.
    Samples and features of streams are on the CPU, and so are the frames that a search reads: on a
    GPU, the small operations of each stream would take longer than a step of all streams. The
    network's past stays on its device.

    Args:
        backend: backend that runs the network.
        frontend: frontend that computes the network's features from samples, on the CPU.
        detector: speech detector; None without one.

    Attributes:
        spec: sizes and context of the network.
        batch_frontend: the frontend on the network's device, for batches of whole recordings.
    """

    def __init__(
        self, backend: Backend, frontend: Frontend, detector: SpeechDetector | None = None
    ) -> None:
        self.backend, self.frontend, self.detector = backend, frontend, detector
        self.batch_frontend = frontend
        if backend.spec.device.type != "cpu":
            self.batch_frontend = copy.deepcopy(frontend).to(backend.spec.device)

    @property
    def spec(self) -> Spec:
        return self.backend.spec

    @torch.inference_mode()
    def features(self, samples: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Return features for samples: (B, N) at 16 kHz and the past (B, P) -> (B, T, F), new past.

        The past of streams that have not started is `frontend.start(B)`.
        """
        return self.frontend(samples, past)

    def init_state(self, batch_size: int) -> EncoderState:
        """Return the network's past of streams that have not started."""
        return self.backend.init_state(batch_size)

    def chunk_end(self, chunks: int, sample_rate: int) -> int:
        """Return the number of a stream's samples that complete its first chunks."""
        frames = chunks * self.spec.chunk_frames + self.spec.ahead_frames
        end = self.frontend.frame_size + (frames - 1) * HOP - self.frontend.before
        return needed(end, sample_rate)

    @torch.inference_mode()
    def step(
        self, feats: Tensor, lengths: Tensor, state: EncoderState
    ) -> tuple[list[Tensor], EncoderState]:
        """Return the head's frames of each stream, (E, V), and the new past.

        All steps of a stream but the last consist of whole chunks.

        Args:
            feats: (B, T, F), on any device.
            lengths: (B,) valid feature frames.
            state: past of B streams.
        """
        device = self.spec.device
        output = self.backend.step(feats.to(device), lengths.to(device), state)
        frames = output.frames if self.backend.head.IN_SEARCH else output.frames.cpu()
        rows = zip(frames, output.lengths.tolist(), strict=True)
        return [own[:size] for own, size in rows], output.state

    def step_of(
        self, feats: Sequence[Tensor], state: EncoderState
    ) -> tuple[list[Tensor], EncoderState]:
        """Compute `step` for streams with (T, F) each, of any lengths."""
        lengths = torch.tensor([len(each) for each in feats], device=feats[0].device)
        return self.step(pad_sequence([*feats], batch_first=True), lengths, state)


def build_engine(backend: Backend, frontend: Frontend | None, vad: bool) -> Engine:
    """Return an engine with a copy of the frontend, Kaldi's if None, and perhaps a detector.

    Raises:
        ValueError: for a frontend that does not fit the network.
    """
    spec = backend.spec
    frontend = frontend or Fbank(spec.num_mels, spec.rate.lead_frames)
    if (frontend.num_mels, frontend.lead_frames) != (spec.num_mels, spec.rate.lead_frames):
        raise ValueError(
            f"the frontend must fit the network, which expects {spec.num_mels} mel bins and "
            f"{spec.rate.lead_frames} frames before the stream; got {frontend.num_mels} mel "
            f"bins and {frontend.lead_frames} frames"
        )
    frontend = copy.deepcopy(frontend).to("cpu", spec.dtype)
    return Engine(backend, frontend, SpeechDetector(spec.rate.frame_ms) if vad else None)
