"""The audio that clients send: samples in packets of any size, and G.711 of telephones."""

import io
from typing import Any

import numpy as np
import soundfile

from asrkit.audio import mono

S16, CODE = np.dtype("<i2"), np.dtype("u1")  # 16-bit values; codes of G.711


class SampleReader:
    """A reader of the samples in a client's packets, which may end within a sample.

    Args:
        dtype: type of a value.
        channels: interleaved channels; a sample is one value of each.
        table: values of the codes of G.711, or None.
        mixes: whether channels are mixed.
    """

    def __init__(
        self, dtype: np.dtype[Any] = S16, channels: int = 1, table: np.ndarray | None = None,
        mixes: bool = False,
    ) -> None:  # fmt: skip
        self.dtype, self.channels, self.table = dtype if table is None else CODE, channels, table
        self.native = self.dtype.newbyteorder("=")
        self.past, self.mixes = b"", mixes

    def read(self, data: bytes) -> np.ndarray:
        """Return the samples (n,) of a packet, or (n, channels) of several that are not mixed."""
        data = self.past + data if self.past else data
        whole = len(data) - len(data) % (self.channels * self.dtype.itemsize)
        self.past = data[whole:]
        samples = np.frombuffer(data[:whole], self.dtype).astype(self.native, copy=False)
        samples = samples if self.table is None else self.table[samples]
        samples = samples if self.channels == 1 else samples.reshape(-1, self.channels)
        return mono(samples) if self.mixes else samples

    def problems(self) -> list[str]:
        """Return a warning for each part of the audio that is not used."""
        past = f"the audio ends within a sample: {len(self.past)} bytes are not used"
        return [past] if self.past else []


def g711(law: str) -> np.ndarray:
    """Return the values of the 256 codes of G.711, int16, as libsndfile decodes them."""
    form = {"format": "RAW", "subtype": law, "samplerate": 8000, "channels": 1}
    return soundfile.read(io.BytesIO(bytes(range(256))), dtype="int16", **form)[0]


MU_LAW, A_LAW = g711("ULAW"), g711("ALAW")
