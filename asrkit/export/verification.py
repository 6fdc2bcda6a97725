"""Comparison of an exported file with eager over a whole stream."""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.audio import HOP, features
from asrkit.backends.export_metadata import Exported
from asrkit.backends.onnx import MOST_WHOLE
from asrkit.backends.tolerance import TOLERANCE, aged, difference
from asrkit.build import build_frontend
from asrkit.export.modules import SamplesStep, WholeStep, of_stream
from asrkit.model import EncoderStep, NetworkStep
from asrkit.model.subsampling import split_steps
from asrkit.model_file import ModelFile

ROUNDINGS = 8.0  # factor on eager's rounding errors; ONNX Runtime's are up to four times as large


def chunk_length(exported: Exported, file: ModelFile) -> int:
    """Return the length of a chunk in feature frames, or in samples for "model"."""
    frames = file.model.encoder.rate.chunk_frames(exported.context)
    return frames * HOP if exported.what == "model" else frames


def eager_step(file: ModelFile, exported: Exported) -> nn.Module:
    """Return the module that is exported, and that the export must equal."""
    if exported.context.full:
        return WholeStep(file.model).eval()
    if exported.what == "encoder":
        return EncoderStep(file.model.encoder, exported.context).eval()
    step = NetworkStep(file.model, exported.context).eval()
    if exported.what != "model":
        return step
    return SamplesStep(build_frontend(file.config.model), step).eval()


def largest_difference(file: ModelFile, exported: Exported, module: Any, samples: Tensor) -> float:
    """Return the largest difference from eager over all outputs and states of samples (1, N).

    The stream runs alone with one chunk per step. It also runs in a batch with three chunks per
    step, with streams that started now, an hour ago and a day ago. In full context the recording
    runs alone, and in a batch of different lengths.
    """
    found = [
        outputs(step, exported, samples, file) for step in (eager_step(file, exported), module)
    ]
    return max(map(difference, *found))


def tolerance(
    file: ModelFile, exported: Exported, samples: Tensor, found: float = math.inf
) -> float:
    """Return the allowed difference from eager over these samples (1, N), where `found` was found.

    The result is TOLERANCE. For exports from samples it is at least ROUNDINGS times the difference
    between eager in float32 and in float64. In a band with hardly any energy, the logarithm
    consists of rounding errors of the loud bands, which limits the precision in any program.
    """
    if exported.what != "model" or found <= TOLERANCE:
        return TOLERANCE
    precise = file._replace(model=copy.deepcopy(file.model).double())
    ours, exact = (
        outputs(step, exported, samples, file)
        for step in (eager_step(file, exported), eager_step(precise, exported).double())
    )
    rounding = max(difference(a.double(), b.double()) for a, b in zip(ours, exact, strict=True))
    return max(TOLERANCE, ROUNDINGS * rounding)


def outputs(step: Any, exported: Exported, samples: Tensor, file: ModelFile) -> list[Tensor]:
    """Return the outputs that `largest_difference` compares."""
    if exported.context.full:
        return whole(step, samples, file)
    together = torch.cat([samples.flip(1), samples, samples.flip(1)])
    return [
        output
        for rows, chunks in ((samples, 1), (together, 3))
        for output in replay(step, exported, file, rows, chunks)
    ]


@torch.inference_mode()
def replay(
    step: Any, exported: Exported, file: ModelFile, samples: Tensor, chunks: int
) -> list[Tensor]:
    """Return all outputs of a step over samples (B, N), N ≥ 400, with `chunks` per step."""
    from_samples, size = exported.what == "model", chunk_length(exported, file)
    state, outputs = aged(step.init_state(len(samples)), exported.frame_ms), []
    frontend, rate = build_frontend(file.config.model), file.model.encoder.rate
    stream = of_stream(frontend, samples)
    unit, overlap = (HOP, frontend.frame_size - HOP) if from_samples else (1, 0)
    source = stream[:, overlap:] if from_samples else frontend(stream, stream[:, :0])[0]
    source = source.to(state.feats.dtype)
    ahead, lookahead = unit * rate.ahead_frames(exported.context), unit * rate.lookahead
    past = functional.pad(stream, (0, overlap + ahead))[:, : overlap + ahead].to(source)
    for part, length in split_steps(source, chunks * size, lookahead, ahead):
        lengths = torch.full((len(samples),), length)
        missing = max(ahead + size - part.size(1), (ahead - part.size(1)) % size)
        part = functional.pad(part, [0, 0] * (part.dim() - 2) + [0, missing])
        if from_samples:  # the first samples of the part are in the past already
            output, lengths, past, state = step(part[:, ahead:], lengths - ahead, past, state)
        else:
            output, lengths, state = step(part, lengths, state)
        outputs.append(output[:, : int(lengths[0])])
    return [torch.cat(outputs, dim=1), past, *state]


@torch.inference_mode()
def whole(step: Any, samples: Tensor, file: ModelFile) -> list[Tensor]:
    """Return log-probabilities in full context of samples (1, N), alone and in a mixed batch."""
    encoder = file.model.encoder
    frontend, length = build_frontend(file.config.model), torch.tensor([samples.size(1)])
    feats = features(frontend, samples, length)[0][:, : MOST_WHOLE * encoder.rate.factor]
    feats = feats.to(encoder.mean.dtype)
    frames = encoder.rate.num_frames(feats.size(1))
    found = []
    for count in (frames, max(1, frames // 3)):
        size = encoder.rate.factor * count + encoder.rate.lookahead
        feats = functional.pad(feats, (0, 0, 0, max(0, size - feats.size(1))))  # (1, T, F)
        lengths = torch.tensor([size, max(1, size // 2), 1])
        found += [step(feats[:, :size], lengths[:1])[0]]
        rows = step(feats[:, :size].expand(3, -1, -1).contiguous(), lengths)[0]
        found += [
            row[: encoder.rate.num_frames(int(n))] for row, n in zip(rows, lengths, strict=True)
        ]
    return found
