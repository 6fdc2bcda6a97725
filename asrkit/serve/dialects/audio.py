"""The audio that clients send: samples in packets of any size, and G.711 of telephones."""

from typing import Any

import numpy as np

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


def mu_law(code: int) -> int:
    """Decode µ-law: sign, exponent and mantissa, all bits inverted; the bias is 33 in 14 bits."""
    code = ~code & 0xFF
    magnitude = ((((code & 0x0F) << 1) + 33) << (code >> 4 & 7)) - 33
    return 4 * (-magnitude if code & 0x80 else magnitude)


def a_law(code: int) -> int:
    """Decode A-law: sign, exponent and mantissa, every second bit inverted, in 13 bits."""
    code ^= 0x55
    exponent, mantissa = code >> 4 & 7, (code & 0x0F) << 1
    magnitude = mantissa + 1 if exponent == 0 else (mantissa + 33) << (exponent - 1)
    return 8 * (magnitude if code & 0x80 else -magnitude)


MU_LAW = np.array([mu_law(code) for code in range(256)], np.int16)  # by the code
A_LAW = np.array([a_law(code) for code in range(256)], np.int16)
