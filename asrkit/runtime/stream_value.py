"""The value of a stream, which is saved, and the check that its parts fit each other."""

from typing import NamedTuple

import numpy as np
from torch import Tensor

from asrkit import audio
from asrkit.model import EncoderState
from asrkit.runtime.engine import Engine
from asrkit.runtime.serialization import require
from asrkit.runtime.transcript import TranscriptValue
from asrkit.runtime.vad import SpeechState
from asrkit.runtime.windows import Windows


class StreamValue(NamedTuple):
    """The stored values of a stream; its other attributes are derived from these."""

    packets: np.ndarray
    resampler: audio.ResamplerPast
    past: Tensor
    samples: Tensor
    feats: Tensor
    detector: SpeechState | None
    speech: tuple[bool, ...]
    transcript: TranscriptValue
    ended_feats: tuple[Tensor, ...]
    kept: Tensor | None
    state: EncoderState
    ended: bool


def check(
    value: StreamValue, fresh: StreamValue, engine: Engine, windows: Windows | None, first: int
) -> None:
    """Raise ValueError unless the parts of a value fit each other and a stream of this engine.

    Args:
        value: value to check, whose transcript is checked already.
        fresh: value of a stream with the same options that has not started.
        windows: windows of full context; None in chunks.
        first: first encoder frame that the second pass needs.
    """
    spec, given, transcript = engine.spec, value.resampler.given, value.transcript
    factor, ahead, frame = spec.rate.factor, spec.rate.lookahead, transcript.frame
    rows = len(value.state.position)
    require(rows == 1 or (rows == 0 and transcript.finished), "the network's state is missing")
    for found, own in zip(value.state, fresh.state, strict=True):
        require(len(found) == rows and fits(found, own, 0), "another network's state")
    require(
        all(0 <= each <= frame for each in value.state.position.tolist()),
        "the network is ahead of the stream",
    )
    kept = () if value.kept is None else (value.kept,)
    for feats in (value.feats, *value.ended_feats, *kept):
        require(fits(feats, fresh.feats, 0), "another frontend's features")
    for samples in (value.past, value.samples):
        require(fits(samples, fresh.past, 1), "another frontend's samples")
    waiting = value.past.size(1) + value.samples.size(1)
    if not transcript.finished:
        seen = 0 if windows is None else windows.before(frame)
        frames, frontend = factor * (frame - seen) + len(value.feats), engine.frontend
        count = audio.HOP * frames + waiting - (0 if frames else frontend.marker)
        most = frontend.before + given + (frontend.after if value.ended else 0)
        require(count == most, f"the stream has {count} samples of {most}")
    done = value.ended and len(value.feats) == 0
    require(transcript.finished == done, "the stream has ended, and its text has not")
    packets = value.packets
    require(packets.ndim == 1 and packets.dtype == fresh.packets.dtype, "packets of another kind")
    check_speech(value, engine)
    require(len(kept) == (fresh.kept is not None), "features of the second pass are missing")
    for count, size in [(len(each), frame - first) for each in kept] + [
        (len(each) - ahead, span.last - span.first)
        for each, (span, _) in zip(value.ended_feats, transcript.waiting, strict=True)
    ]:
        require(-(-count // factor) == size, f"there are {count} of {factor * size} frames")


def check_speech(value: StreamValue, engine: Engine) -> None:
    """Raise ValueError unless the speech detector's state and frames fit the stream."""
    detector, given = engine.detector, value.resampler.given
    require((detector is None) == (value.detector is None), "a speech detector is missing")
    if detector is not None and value.detector is not None:
        detector.check(value.detector, given)
        frame, rate = value.transcript.frame, engine.spec.rate
        complete = max(frame, -(-rate.lead_frames // rate.factor) + given // detector.frame)
        require(frame + len(value.speech) == complete, "frames of the speech detector are missing")


def fits(found: Tensor, like: Tensor, dim: int) -> bool:
    """Return whether a tensor has the dtype of `like`, and its shape except for one dimension."""
    same = found.dtype == like.dtype and found.dim() == like.dim()
    return same and found.narrow(dim, 0, 0).shape == like.narrow(dim, 0, 0).shape
