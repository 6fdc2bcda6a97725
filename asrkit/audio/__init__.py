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
from asrkit.audio.io import Resampler, blocks, info, load, mono, read, resample

__all__ = [
    "HOP",
    "SAMPLE_RATE",
    "WINDOW",
    "AudioError",
    "Fbank",
    "Resampler",
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
