"""Reading, resampling, features and augmentation of audio. asrkit computes at 16 kHz, mono."""

from asrkit.audio.augment import (
    SpecAugment,
    between_silences,
    change_gain,
    through_telephone,
    warp_frequencies,
)
from asrkit.audio.fbank import HOP, SAMPLE_RATE, WINDOW, Fbank, features
from asrkit.audio.file import AudioError
from asrkit.audio.io import blocks, info, load, mono, read
from asrkit.audio.resampler import Resampler, ResamplerPast, resample

__all__ = [
    "HOP",
    "SAMPLE_RATE",
    "WINDOW",
    "AudioError",
    "Fbank",
    "Resampler",
    "ResamplerPast",
    "SpecAugment",
    "between_silences",
    "blocks",
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
