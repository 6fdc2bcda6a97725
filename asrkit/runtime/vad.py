"""Whether somebody speaks, by silero-vad: a second opinion on what the network calls a pause."""

import importlib.util
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from asrkit.audio import SAMPLE_RATE
from asrkit.errors import UserError
from asrkit.extras import pip_install

BLOCK, CONTEXT = 512, 64  # samples at 16 kHz that it looks at, and those before them


class SpeechState(NamedTuple):
    samples: Tensor  # (64 + p,), p samples that fill no block yet after what was before them
    memory: Tensor  # (2, 1, 128)
    total: int  # samples taken
    speech: bool  # whether there was any in the frame that is not complete


class SpeechDetector:
    """Speech or none in every encoder frame, from the samples.

    Past in, past out. A frame has speech if a block of 32 ms that ends in it has.

    Args:
        frame_ms: milliseconds of an encoder frame, at least 32.

    Raises:
        UserError: if silero-vad is not installed.
    """

    def __init__(self, frame_ms: int) -> None:
        self.frame = frame_ms * SAMPLE_RATE // 1000  # samples of an encoder frame
        # Found and not imported: the package sets torch's number of threads.
        package = importlib.util.find_spec("silero_vad")
        if package is None or package.origin is None:
            raise UserError(f"the speech detector needs silero-vad: {pip_install('silero_vad')}")
        file = Path(package.origin).parent / "data" / "silero_vad.jit"
        self.model = torch.jit.load(str(file), "cpu").eval()._model

    def start(self) -> SpeechState:
        """The state of a stream that has not begun."""
        samples, memory = (
            torch.zeros(shape, dtype=torch.float32, device="cpu")
            for shape in ((CONTEXT,), (2, 1, 128))
        )
        return SpeechState(samples, memory, 0, False)

    def check(self, state: SpeechState, num_samples: int) -> None:
        """Raises ValueError for what cannot be the state after so many samples."""
        waiting = CONTEXT + num_samples % BLOCK
        shapes = [*state.samples.shape], [*state.memory.shape]
        floats = state.samples.dtype == state.memory.dtype == torch.float32
        if not floats or shapes != ([waiting], [2, 1, 128]) or state.total != num_samples:
            raise ValueError("the state of the speech detector does not fit the stream")

    @torch.inference_mode()
    def step(self, state: SpeechState, samples: Tensor) -> tuple[SpeechState, list[bool]]:
        """The state after more samples, and whether there is speech in each frame they complete.

        Args:
            samples: (n,) in [-1, 1] at 16 kHz.
        """
        waiting, memory, total, unfinished = state
        end = total - (len(waiting) - CONTEXT)  # of the last block
        waiting = torch.cat([waiting, samples.float().cpu()])
        done, total = total // self.frame, total + len(samples)
        speech = [unfinished] + [False] * (total // self.frame - done)
        while len(waiting) >= CONTEXT + BLOCK:
            prob, memory = self.model(waiting[None, : CONTEXT + BLOCK], memory)
            waiting, end = waiting[BLOCK:], end + BLOCK
            if prob > 0.5:
                speech[(end - 1) // self.frame - done] = True
        return SpeechState(waiting.clone(), memory, total, speech[-1]), speech[:-1]
