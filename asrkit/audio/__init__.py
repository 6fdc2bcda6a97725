"""Reading, resampling, features and augmentation of audio. asrkit computes at 16 kHz, mono."""

from asrkit.audio.files import blocks, info, load, read
from asrkit.audio.frontends import (
    HOP,
    KINDS,
    WINDOW,
    Fbank,
    Frontend,
    build_frontend,
    features,
)
from asrkit.audio.resampler import SAMPLE_RATE, Resampler, ResamplerPast, resample
from asrkit.audio.samples import AudioError, mono, source_of

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
    "blocks",
    "build_frontend",
    "features",
    "info",
    "load",
    "mono",
    "read",
    "resample",
    "source_of",
]
