"""Audio inside the page."""

import base64
import io
from collections.abc import Iterable, Iterator

import numpy as np
import soundfile

from asrkit.audio import SAMPLE_RATE

ROOM = 8_000_000  # largest number of characters of a page's audio


def players(recordings: Iterable[np.ndarray], room: int = ROOM) -> Iterator[str | None]:
    """Yield a URL of each recording (n,) at 16 kHz, or None once `room` characters are full."""
    for samples in recordings:
        url = data_url(samples)
        fits = len(url) <= room
        room -= len(url) if fits else 0
        yield url if fits else None


def data_url(samples: np.ndarray) -> str:
    """Encode samples as MP3, about 3 kB a second, or as FLAC if no MP3 encoder is installed."""
    file, inside = io.BytesIO(), np.clip(samples, -1, 1)
    if "MP3" in soundfile.available_formats():
        kind, smallest = "mpeg", {"bitrate_mode": "VARIABLE", "compression_level": 0.9}
        soundfile.write(file, inside, SAMPLE_RATE, format="MP3", **smallest)
    else:
        kind = "flac"
        soundfile.write(file, inside, SAMPLE_RATE, format="FLAC")
    return f"data:audio/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
