"""Speech detection by silero-vad: confirms the pauses that the network finds."""

import importlib.util
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from asrkit.audio import SAMPLE_RATE
from asrkit.backends.pytorch import unwarned
from asrkit.errors import UserError
from asrkit.extras import pip_install

BLOCK, CONTEXT = 512, 64  # samples at 16 kHz of a block, and the samples before it that silero sees


class SpeechState(NamedTuple):
    samples: Tensor  # (64 + p,), the 64 samples before the next block, and its p samples so far
    memory: Tensor  # (2, 1, 128)
    total: int  # number of samples processed
    speech: bool  # whether the incomplete frame has speech so far


class SpeechDetector:
    """A detector of speech in every encoder frame, from the samples.

    Each step receives a state and returns the next. A frame has speech if a 32 ms block that ends
    in the frame has speech.

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
        file = Path(package.origin).parent / "data" / "silero_vad.jit"
        with unwarned():
            self.model = torch.jit.load(str(file), "cpu").eval()._model

    def start(self) -> SpeechState:
        """Return the state of a stream that has not started."""
        samples, memory = (
            torch.zeros(shape, dtype=torch.float32, device="cpu")
            for shape in ((CONTEXT,), (2, 1, 128))
        )
        return SpeechState(samples, memory, 0, False)

    def check(self, state: SpeechState, num_samples: int) -> None:
        """Raise ValueError unless this can be the state after `num_samples` samples."""
        waiting = CONTEXT + num_samples % BLOCK
        shapes = [*state.samples.shape], [*state.memory.shape]
        floats = state.samples.dtype == state.memory.dtype == torch.float32
        if not floats or shapes != ([waiting], [2, 1, 128]) or state.total != num_samples:
            raise ValueError("the state of the speech detector does not fit the stream")

    @torch.inference_mode()
    def step(self, state: SpeechState, samples: Tensor) -> tuple[SpeechState, list[bool]]:
        """Return the state after more samples, and whether each completed frame has speech.

        Args:
            samples: (n,) in [-1, 1] at 16 kHz.
        """
        waiting, memory, total, unfinished = state
        end = total - (len(waiting) - CONTEXT)  # end of the last block
        waiting = torch.cat([waiting, samples.float().cpu()])
        done, total = total // self.frame, total + len(samples)
        speech = [unfinished] + [False] * (total // self.frame - done)
        while len(waiting) >= CONTEXT + BLOCK:
            prob, memory = self.model(waiting[None, : CONTEXT + BLOCK], memory)
            waiting, end = waiting[BLOCK:], end + BLOCK
            if prob > 0.5:
                speech[(end - 1) // self.frame - done] = True
        return SpeechState(waiting.clone(), memory, total, speech[-1]), speech[:-1]
