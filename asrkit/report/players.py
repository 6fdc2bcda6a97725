"""Audio players inside the page."""

import base64
import io

import numpy as np
import soundfile

from asrkit.audio import SAMPLE_RATE
from asrkit.report.html import Html, note, tag

ROOM = 8_000_000  # largest number of characters of a page's audio


class Players:
    """A factory of audio elements, up to a total size."""

    def __init__(self, room: int = ROOM) -> None:
        self.room = room
        self.left_out = 0

    def __call__(self, samples: np.ndarray) -> Html:
        """Return a player of float32 mono samples (n,) at 16 kHz."""
        url = data_url(samples)
        if len(url) > self.room:
            self.left_out += 1
            return note("Audio left out: the page would become too large.")
        self.room -= len(url)
        return tag("audio", controls=True, preload="metadata", src=url)


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
