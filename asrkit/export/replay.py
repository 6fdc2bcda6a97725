"""An exported file against eager over a whole stream."""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.audio import HOP, Fbank
from asrkit.checkpoint import ModelFile
from asrkit.export.adapter import FIRST_PAST, SamplesStep
from asrkit.model import CTCStep, EncoderStep

TOLERANCE = 1e-4


class Exported(NamedTuple):
    """What of a model is exported, and for which context."""

    what: Literal["encoder", "model"]  # log mels to frames; samples to log-probabilities
    chunk_size: int
    left_context: int


def eager_step(file: ModelFile, exported: Exported) -> nn.Module:
    """The module that is exported, and that the export has to equal."""
    if exported.what == "encoder":
        return EncoderStep(file.model.encoder, exported.chunk_size, exported.left_context).eval()
    step = CTCStep(file.model, exported.chunk_size, exported.left_context)
    return SamplesStep(Fbank(file.config.model.num_mels), step).eval()


def largest_difference(file: ModelFile, exported: Exported, module: Any, samples: Tensor) -> float:
    """Over all outputs and states of a stream of samples (1, N), alone and in a batch of two."""
    eager = eager_step(file, exported)
    largest = []
    for batch in (samples, torch.cat([samples, samples.flip(1)])):
        ours, theirs = (replay(step, exported, batch) for step in (eager, module))
        largest += [difference(a, b) for a, b in zip(ours, theirs, strict=True)]
    return max(largest)


def difference(a: Tensor, b: Tensor) -> float:
    """Largest absolute difference; infinite if a shape differs or a number is not finite."""
    if a.shape != b.shape or not torch.isfinite(a - b).all():
        return float("inf")
    return float((a - b).abs().max()) if a.numel() else 0.0


@torch.inference_mode()
def replay(step: Any, exported: Exported, samples: Tensor) -> list[Tensor]:
    """Every output of a step over samples (B, N), N ≥ 400, one chunk at a time."""
    encoder = exported.what == "encoder"
    size = 4 * exported.chunk_size  # of a chunk: feature frames, or their samples
    if encoder:
        source = Fbank(step.init_state(1).feats.size(2))(samples, samples[:, :0])[0]
    else:
        source, size = samples[:, FIRST_PAST:], size * HOP
    state, past, outputs = step.init_state(len(samples)), samples[:, :FIRST_PAST], []
    for chunk in source.split(size, dim=1):
        lengths = torch.full((len(samples),), chunk.size(1))
        padding = [0, 0] * (chunk.dim() - 2) + [0, size - chunk.size(1)]
        chunk = functional.pad(chunk, padding)
        if encoder:
            output, lengths, state = step(chunk, lengths, state)
        else:
            output, lengths, past, state = step(chunk, lengths, past, state)
        outputs.append(output[:, : int(lengths[0])])
    return [torch.cat(outputs, dim=1), past, *state]
