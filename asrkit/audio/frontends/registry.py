"""The kinds of frontends."""

from collections.abc import Mapping
from typing import Any

from asrkit.audio.frontends.base import Frontend
from asrkit.audio.frontends.kaldi import Fbank
from asrkit.audio.frontends.nemo import SlaneyFbank
from asrkit.registry import Kinds

KINDS: Kinds[Frontend] = Kinds(
    "frontend", {"kaldi": Fbank, "slaney": SlaneyFbank}, ("num_mels", "lead_frames")
)


def build_frontend(
    frontend: str | Mapping[str, Any], num_mels: int, lead_frames: int = 0
) -> Frontend:
    """The frontend of a kind, or of a kind with its options.

    Raises:
        ValueError: for a kind or an option that is not one, or numbers that do not fit.
    """
    cls, options = KINDS.chosen(frontend)
    return cls(num_mels, lead_frames, **options)
