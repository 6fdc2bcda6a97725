"""Whole recordings as rows of one step: from samples to frames, and from frames to results."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from asrkit import audio
from asrkit.runtime.engine import Engine
from asrkit.runtime.results import Result
from asrkit.runtime.stream import duration
from asrkit.runtime.transcript import DecodingOptions, Transcript, searched
from asrkit.runtime.windows import Quiet, frames_of_rows


def numbered(index: int, samples: np.ndarray) -> np.ndarray:
    """Return mono samples of utterance `index`; errors contain the index."""
    try:
        return audio.mono(samples)
    except audio.AudioError as error:
        raise audio.AudioError(f"utterance {index}: {error}") from None


def frames_of_recordings(
    engine: Engine, recordings: Sequence[np.ndarray], quiet: Quiet
) -> list[Tensor]:
    """Return the head's frames (E, V) of recordings at 16 kHz, (n,) float32 in [-1, 1] each.

    `quiet` finds the frames without speech, where a window of full context may end.
    """
    spec = engine.spec
    rows = [torch.from_numpy(samples) for samples in recordings]
    num_samples = torch.tensor([len(row) for row in rows], device=spec.device)
    samples = pad_sequence(rows, batch_first=True).to(spec.device, spec.dtype)
    with torch.inference_mode():
        feats, lengths = audio.features(engine.batch_frontend, samples, num_samples)
    return frames_of_rows(engine, feats, lengths, quiet)


def results_of_rows(
    engine: Engine, decoding: DecodingOptions, frames: Sequence[Tensor], num_samples: Sequence[int]
) -> list[Result]:
    """Return the results of recordings in one pass, from frames (E, V) and numbers of samples.

    Without endpoints, their searches share steps.
    """
    spec, decoding = engine.spec, decoding._replace(second=None)
    transcripts = [
        Transcript(decoding, spec.rate.frame_ms, spec.context_name, engine.frontend.lead_ms)
        for _ in frames
    ]
    found: list[Any] = [None] * len(transcripts)
    if decoding.endpointer is None:  # else another segment searches the frames after an endpoint
        found = searched([transcript.live for transcript in transcripts], frames)
    results = []
    for transcript, own, size, after in zip(transcripts, frames, num_samples, found, strict=True):
        transcript.append(own, duration(size), after=after)
        results.append(transcript.finish(duration(size)))
    return results
