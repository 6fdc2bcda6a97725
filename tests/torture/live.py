"""Recognisers of streams that tests disturb."""

from functools import cache
from pathlib import Path

import asrkit
from asrkit.runtime import Recognizer

KEPT = Path(__file__).parents[1] / "kept"


@cache
def recognizer(kind: str) -> Recognizer:
    """Return a small recogniser, with or without segments, a second pass and prefix beam search."""
    path = KEPT / "models" / "exported.safetensors"
    if kind == "plain":
        return asrkit.load(path, backend="eager")
    ends = asrkit.Endpointer(pause_ms=100)
    return asrkit.load(
        path, backend="eager", endpointer=ends, second_pass="full", search="prefix_beam"
    )
