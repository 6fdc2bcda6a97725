"""The audio that clients send: samples in packets of any size, and G.711 of telephones."""

from typing import Any

import numpy as np


def samples_of(
    past: bytes, data: bytes, dtype: np.dtype[Any], channels: int = 1
) -> tuple[np.ndarray, bytes]:
    """Return the samples of a packet, and the bytes of an incomplete last sample as next `past`.

    Args:
        past: bytes before the packet that are not a whole sample.
        data: bytes of the packet.
        dtype: type of a sample.
        channels: interleaved channels; a sample is one value of each.

    Returns:
        Samples (n,), or (n, channels) of several channels; and the next `past`.
    """
    data = past + data if past else data
    whole = len(data) - len(data) % (channels * dtype.itemsize)
    samples = np.frombuffer(data[:whole], dtype).astype(dtype.newbyteorder("="))
    return samples if channels == 1 else samples.reshape(-1, channels), data[whole:]


def cut_off(past: bytes) -> str:
    """Return the warning about an incomplete last sample, or ""."""
    return f"the audio ends within a sample: {len(past)} bytes are not used" if past else ""


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
