"""Reading, resampling, features and augmentation of audio. asrkit computes at 16 kHz, mono."""

from asrkit.audio.augment import (
    SpecAugment,
    between_silences,
    change_gain,
    through_telephone,
    warp_frequencies,
)
from asrkit.audio.fbank import Fbank
from asrkit.audio.file import AudioError
from asrkit.audio.frontend import HOP, SAMPLE_RATE, WINDOW, Frontend, features
from asrkit.audio.io import blocks, info, load, mono, read
from asrkit.audio.kinds import KINDS, build_frontend
from asrkit.audio.resampler import Resampler, ResamplerPast, resample

__all__ = [
    "HOP",
    "KINDS",
    "SAMPLE_RATE",
    "WINDOW",
    "AudioError",
    "Fbank",
    "Frontend",
    "Resampler",
    "ResamplerPast",
    "SpecAugment",
    "between_silences",
    "blocks",
    "build_frontend",
    "change_gain",
    "features",
    "info",
    "load",
    "mono",
    "read",
    "resample",
    "through_telephone",
    "warp_frequencies",
]
