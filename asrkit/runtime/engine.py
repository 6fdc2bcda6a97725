"""A backend with its frontend and speech detector, shared by all streams."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asrkit.audio import HOP, SAMPLE_RATE, Fbank, Frontend
from asrkit.audio.resampler import needed
from asrkit.backends import Backend
from asrkit.backends.backend import State
from asrkit.backends.onnx import runtime
from asrkit.errors import UserError
from asrkit.extras import pip_install

BLOCK, CONTEXT = 512, 64  # samples at 16 kHz of a block, and the samples before it that silero sees
FRONTEND = (  # attributes that state the options of a frontend
    "num_mels", "lead_frames", "frame_size", "hop", "fft_size", "before", "after", "mirrored",
    "edge", "marker", "preemphasis", "low", "high", "margin", "guard", "floor",
)  # fmt: skip


class SpeechState(NamedTuple):
    samples: np.ndarray  # (64 + p,), the 64 samples before the next block, and its p samples so far
    memory: np.ndarray  # (2, 1, 128)
    total: int  # number of samples processed
    speech: bool  # whether the incomplete frame has speech so far


class SpeechDetector:
    """A detector of speech by silero-vad, which confirms the pauses that the network finds.

    Each step receives a state and returns the next. An encoder frame has speech if a 32 ms block
    that ends in the frame has speech.

    Args:
        frame_ms: milliseconds of an encoder frame, at least 32.

    Raises:
        UserError: if silero-vad is not installed.
    """

    def __init__(self, frame_ms: int) -> None:
        self.frame = frame_ms * SAMPLE_RATE // 1000  # samples of an encoder frame
        # Its path is found without an import: the package would set torch's number of threads.
        package = importlib.util.find_spec("silero_vad")
        if package is None or package.origin is None:
            raise UserError(f"the speech detector needs silero-vad: {pip_install('silero_vad')}")
        onnxruntime = runtime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        path = Path(package.origin).parent / "data" / "silero_vad.onnx"
        self.session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])

    def start(self) -> SpeechState:
        """Return the state of a stream that has not started."""
        samples, memory = np.zeros(CONTEXT, np.float32), np.zeros((2, 1, 128), np.float32)
        return SpeechState(samples, memory, 0, False)

    def step(self, state: SpeechState, samples: np.ndarray) -> tuple[SpeechState, list[bool]]:
        """Return the state after more samples, and whether each completed frame has speech.

        Args:
            samples: (n,) in [-1, 1] at 16 kHz.
        """
        waiting, memory, total, unfinished = state
        end = total - (len(waiting) - CONTEXT)  # end of the last block
        waiting = np.concatenate([waiting, samples], dtype=np.float32)
        done, total = total // self.frame, total + len(samples)
        speech = [unfinished] + [False] * (total // self.frame - done)
        while len(waiting) >= CONTEXT + BLOCK:
            block = waiting[None, : CONTEXT + BLOCK]
            prob, memory = self.session.run(
                None, {"input": block, "state": memory, "sr": np.array(SAMPLE_RATE)}
            )
            waiting, end = waiting[BLOCK:], end + BLOCK
            if prob > 0.5:
                speech[(end - 1) // self.frame - done] = True
        return SpeechState(waiting.copy(), memory, total, speech[-1]), speech[:-1]


class Engine:
    """A backend with its frontend and speech detector, shared by all streams. Never changes.

    Methods receive the past of a stream and return the new past; an engine stores no stream.
    Samples, features and emissions are arrays of NumPy: on a GPU, the small operations of each
    stream would take longer than a step of all streams. The network's past stays on its device.

    Args:
        backend: backend that runs the network.
        frontend: frontend that computes the network's features from samples.
        detector: speech detector; None without one.

    Attributes:
        spec: sizes and context of the network.
        init_state: returns the network's past of B streams that have not started.
    """

    def __init__(
        self, backend: Backend, frontend: Frontend, detector: SpeechDetector | None = None
    ) -> None:
        self.backend, self.frontend, self.detector = backend, frontend, detector
        self.spec, self.init_state = backend.spec, backend.init_state

    def identity(self) -> dict[str, Any]:
        """Return the values that the head's emissions depend on, except samples, as JSON."""
        options = {
            name: getattr(self.frontend, name) for name in FRONTEND if hasattr(self.frontend, name)
        }
        return {
            "weights": self.backend.weights(),
            **self.context_identity(),
            "frontend": {"kind": type(self.frontend).__name__, **options},
        }

    def context_identity(self) -> dict[str, Any]:
        """Return the kind of the backend and the context, as JSON."""
        return {
            "backend": self.backend.kind,
            "precision": self.spec.dtype,
            "chunk_size": self.spec.context.chunk_size,
            "left_context": self.spec.context.left,
            "right_context": self.spec.context.right,
        }

    def chunk_end(self, chunks: int, sample_rate: int) -> int:
        """Return the number of a stream's samples that complete its first chunks."""
        frames = chunks * self.spec.chunk_frames + self.spec.ahead_frames
        end = self.frontend.frame_size + (frames - 1) * HOP - self.frontend.before
        return needed(end, sample_rate)

    def step(
        self, feats: np.ndarray, lengths: np.ndarray, state: State
    ) -> tuple[list[np.ndarray], State]:
        """Return the head's emissions of each stream, (E, V or D), and the new past.

        All steps of a stream but the last consist of whole chunks.

        Args:
            feats: (B, T, F).
            lengths: (B,) valid feature frames.
            state: past of B streams.
        """
        output = self.backend.step(feats, lengths, state)
        rows = zip(output.frames, output.lengths.tolist(), strict=True)
        return [row[:size] for row, size in rows], output.state

    def step_of(self, feats: Sequence[np.ndarray], state: State) -> tuple[list[np.ndarray], State]:
        """Compute `step` for streams with (T, F) each, of any lengths."""
        lengths = np.array([len(row) for row in feats])
        return self.step(stacked(feats), lengths, state)


def stacked(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Stack rows of any lengths, and append zeros to the shorter ones."""
    longest = max(map(len, rows))
    batch = np.zeros((len(rows), longest, *rows[0].shape[1:]), rows[0].dtype)
    for row, values in zip(batch, rows, strict=True):
        row[: len(values)] = values
    return batch


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
    frontend = frontend.converted(lambda constant: constant.astype(spec.dtype))
    return Engine(backend, frontend, SpeechDetector(spec.rate.frame_ms) if vad else None)
