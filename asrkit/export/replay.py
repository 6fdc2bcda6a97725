"""An exported file against eager over a whole stream."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.audio import HOP, Fbank
from asrkit.backends.compare import TOLERANCE, aged, difference
from asrkit.backends.description import Exported
from asrkit.export.adapter import FIRST_PAST, SamplesStep
from asrkit.model import CTCStep, EncoderStep
from asrkit.model_file import ModelFile

ROUNDINGS = 8.0  # of eager's own; ONNX Runtime's are up to four times as large


def chunk_length(exported: Exported, file: ModelFile) -> int:
    """What a chunk takes: feature frames, or samples."""
    frames = exported.chunk_size * file.model.encoder.factor
    return frames * HOP if exported.what == "model" else frames


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
    size = chunk_length(exported, file)
    found = [
        outputs(step, exported, samples, size) for step in (eager_step(file, exported), module)
    ]
    return max(map(difference, *found))


def tolerance(file: ModelFile, exported: Exported, samples: Tensor) -> float:
    """How far from eager an export may be over these samples (1, N).

    TOLERANCE. From samples, ROUNDINGS times as far as eager itself is from its results in float64,
    where that is more: the logarithm of a band with hardly any energy is made of the rounding of
    the loud ones, so that what follows from it has no more digits than that in either program.
    """
    if exported.what != "model":
        return TOLERANCE
    precise = file._replace(model=copy.deepcopy(file.model).double())
    ours, exact = (
        outputs(step, exported, samples, chunk_length(exported, file))
        for step in (eager_step(file, exported), eager_step(precise, exported).double())
    )
    rounding = max(difference(a.double(), b.double()) for a, b in zip(ours, exact, strict=True))
    return max(TOLERANCE, ROUNDINGS * rounding)


def outputs(step: Any, exported: Exported, samples: Tensor, size: int) -> list[Tensor]:
    """What `largest_difference` compares."""
    together = torch.cat([samples.flip(1), samples, samples.flip(1)])
    return [*replay(step, exported, samples, size, 1), *replay(step, exported, together, size, 3)]


@torch.inference_mode()
def replay(step: Any, exported: Exported, samples: Tensor, size: int, chunks: int) -> list[Tensor]:
    """Every output of a step over samples (B, N), N ≥ 400, some chunks of a size (`chunk_length`)
    at a time; rows `aged`."""
    from_samples = exported.what == "model"
    state, outputs = aged(step.init_state(len(samples)), exported.frame_ms), []
    source = samples[:, FIRST_PAST:]
    if not from_samples:
        source = Fbank(state.feats.size(2))(samples, samples[:, :0])[0]
    source, past = source.to(state.feats.dtype), samples[:, :FIRST_PAST].to(state.feats.dtype)
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
