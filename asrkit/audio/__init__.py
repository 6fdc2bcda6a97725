"""Reading, resampling, features and augmentation of audio. asrkit computes at 16 kHz, mono."""

from typing import TYPE_CHECKING

from asrkit.audio.files import blocks, info, load, mono_blocks, read
from asrkit.audio.resampler import SAMPLE_RATE, Resampler, ResamplerPast, resample
from asrkit.audio.samples import AudioError, Mixer, mono, source_of

__all__ = [
    "HOP",
    "KINDS",
    "SAMPLE_RATE",
    "WINDOW",
    "AudioError",
    "Fbank",
    "Frontend",
    "Mixer",
    "Resampler",
    "ResamplerPast",
    "SpecAugment",
    "between_silences",
    "blocks",
    "build_frontend",
    "change_gain",
    "features",
    "in_a_room",
    "info",
    "load",
    "mix_noise",
    "mono",
    "mono_blocks",
    "read",
    "resample",
    "source_of",
    "through_telephone",
    "warp_frequencies",
    "with_pauses",
]

if TYPE_CHECKING:
    from asrkit.audio.augment import (
        SpecAugment,
        between_silences,
        change_gain,
        in_a_room,
        mix_noise,
        through_telephone,
        warp_frequencies,
        with_pauses,
    )
    from asrkit.audio.frontends import KINDS, build_frontend
    from asrkit.audio.frontends.base import HOP, WINDOW, Frontend, features
    from asrkit.audio.frontends.kaldi import Fbank
else:  # imported on first use, so that a process that only reads files needs no torch
    MODULES = {
        "frontends.kaldi": ("Fbank",),
        "frontends.base": ("HOP", "WINDOW", "Frontend", "features"),
        "frontends": ("KINDS", "build_frontend"),
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module 'asrkit.audio' has no attribute {name!r}")
        named = (module for module, names in MODULES.items() if name in names)
        value = getattr(import_module(f"asrkit.audio.{next(named, 'augment')}"), name)
        globals()[name] = value  # so that this function is not called for it again
        return value
