"""Frontends compute log mel features from samples: one file per definition."""

from collections.abc import Mapping
from typing import Any

from asrkit.audio.frontends.base import HOP, WINDOW, Frontend, features
from asrkit.audio.frontends.kaldi import Fbank
from asrkit.audio.frontends.nemo import SherpaNemoFbank, SlaneyFbank
from asrkit.audio.frontends.whisper import WhisperFbank
from asrkit.registry import Kinds

__all__ = ["HOP", "KINDS", "WINDOW", "Fbank", "Frontend", "build_frontend", "features"]

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
