"""An exported file against eager over a whole stream."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.audio import HOP, Fbank
from asrkit.checkpoint import ModelFile
from asrkit.export.adapter import FIRST_PAST, SamplesStep
from asrkit.export.description import Exported, What
from asrkit.model import FRAME_MS, CTCStep, EncoderStep

TOLERANCE = 1e-4
HOUR = 3_600_000 // FRAME_MS  # encoder frames
# What an encoder frame is made of: feature frames, or their samples.
CHUNK_UNITS: dict[What, int] = {"encoder": 4, "ctc": 4, "model": 4 * HOP}


def eager_step(file: ModelFile, exported: Exported) -> nn.Module:
    """The module that is exported, and that the export has to equal."""
    if exported.what == "encoder":
        return EncoderStep(file.model.encoder, exported.chunk_size, exported.left_context).eval()
    step = CTCStep(file.model, exported.chunk_size, exported.left_context).eval()
    if exported.what == "ctc":
        return step
    return SamplesStep(Fbank(file.config.model.num_mels), step).eval()


def largest_difference(file: ModelFile, exported: Exported, module: Any, samples: Tensor) -> float:
    """Over all outputs and states of a stream of samples (1, N): alone, a chunk a step; and in a
    batch, three chunks a step, of streams that have begun now, an hour ago and a day ago."""
    eager = eager_step(file, exported)
    largest = []
    together = torch.cat([samples.flip(1), samples, samples.flip(1)])
    for batch, chunks in ((samples, 1), (together, 3)):
        ours, theirs = (replay(step, exported, batch, chunks) for step in (eager, module))
        largest += [difference(a, b) for a, b in zip(ours, theirs, strict=True)]
    return max(largest)


def aged(state: Any) -> Any:
    """A state (B, …) whose rows were all at the same frame: now, an hour later, a day later, …

    What depends on a frame's number shows its rounding only there.
    """
    position = state.position
    hours = torch.tensor([0, 1, 24], device=position.device)
    rows = torch.arange(position.size(0), device=position.device) % len(hours)
    return state._replace(position=position + hours[rows] * HOUR)


def difference(a: Tensor, b: Tensor) -> float:
    """Largest absolute difference; infinite if a shape differs or a number is not finite."""
    if a.shape != b.shape or not torch.isfinite(a - b).all():
        return float("inf")
    return float((a - b).abs().max()) if a.numel() else 0.0


@torch.inference_mode()
def replay(step: Any, exported: Exported, samples: Tensor, chunks: int = 1) -> list[Tensor]:
    """Every output of a step over samples (B, N), N ≥ 400, some chunks at a time; rows `aged`."""
    from_samples = exported.what == "model"
    size = exported.chunk_size * CHUNK_UNITS[exported.what]
    if from_samples:
        source = samples[:, FIRST_PAST:]
    else:
        source = Fbank(step.init_state(1).feats.size(2))(samples, samples[:, :0])[0]
    state, past, outputs = aged(step.init_state(len(samples))), samples[:, :FIRST_PAST], []
    for chunk in source.split(chunks * size, dim=1):
        lengths = torch.full((len(samples),), chunk.size(1))
        padding = [0, 0] * (chunk.dim() - 2) + [0, -chunk.size(1) % size]
        chunk = functional.pad(chunk, padding)
        if from_samples:
            output, lengths, past, state = step(chunk, lengths, past, state)
        else:
            output, lengths, state = step(chunk, lengths, state)
        outputs.append(output[:, : int(lengths[0])])
    return [torch.cat(outputs, dim=1), past, *state]
