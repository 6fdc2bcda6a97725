"""Audio inside the page."""

import base64
import io

import numpy as np
import soundfile

from asrkit.audio import SAMPLE_RATE

ROOM = 8_000_000  # largest number of characters of a page's audio


class Players:
    """A factory of URLs that hold audio, up to a total size."""

    def __init__(self, room: int = ROOM) -> None:
        self.room = room

    def __call__(self, samples: np.ndarray) -> str | None:
        """Return a URL of float32 mono samples (n,) at 16 kHz, or None without room for it."""
        url = data_url(samples)
        if len(url) > self.room:
            return None
        self.room -= len(url)
        return url


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
