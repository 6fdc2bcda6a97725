"""Reading, resampling, features and augmentation of audio. asrkit computes at 16 kHz, mono."""

from collections.abc import Mapping
from typing import Any

from asrkit.audio.files import blocks, info, load, outside, read
from asrkit.audio.frontends.base import HOP, WINDOW, Frontend, features
from asrkit.audio.frontends.kaldi import Fbank
from asrkit.audio.frontends.nemo import SherpaNemoFbank, SlaneyFbank
from asrkit.audio.frontends.whisper import WhisperFbank
from asrkit.audio.resampler import SAMPLE_RATE, Resampler, ResamplerPast, resample
from asrkit.audio.samples import AudioError, mono, source_of
from asrkit.registry import Kinds

KINDS: Kinds[Frontend] = Kinds(
    "frontend",
    {
        "kaldi": Fbank,
        "slaney": SlaneyFbank,
        "sherpa_nemo": SherpaNemoFbank,
        "whisper": WhisperFbank,
    },
    ("num_mels", "lead_frames"),
)


def build_frontend(
    frontend: str | Mapping[str, Any], num_mels: int, lead_frames: int = 0
) -> Frontend:
    """Return the frontend of a kind, given alone or with its options, or raise ValueError."""
    cls, options = KINDS.chosen(frontend)
    return cls(num_mels, lead_frames, **options)
