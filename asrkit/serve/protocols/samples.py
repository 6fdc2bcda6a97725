"""The samples that clients send: from packets of bytes to a call."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from asrkit.serve.calls import Call
from asrkit.serve.server import RefusedError, Server


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


async def append_channels(
    calls: Sequence[Call], server: Server, samples: np.ndarray, sample_rate: int
) -> None:
    """Append samples (n,) or (n, channels) to the calls of their channels: to all, or to none.

    Raises:
        RefusedError: if the calls are too long.
    """
    for call in calls:
        await call.wait_for_room()
    check_length(calls[0], server, samples, sample_rate)
    for call, own in zip(calls, samples.reshape(len(samples), len(calls)).T, strict=True):
        call.append(np.ascontiguousarray(own))  # waits for nothing


async def append_samples(call: Call, server: Server, samples: np.ndarray, sample_rate: int) -> None:
    """Append samples to a call; wait while too much audio waits for the network.

    Raises:
        RefusedError: if the call is too long.
    """
    check_length(call, server, samples, sample_rate)
    await call.accept(samples)


def check_length(call: Call, server: Server, samples: np.ndarray, sample_rate: int) -> None:
    """Raise RefusedError if the samples make a call too long."""
    if call.seconds + len(samples) / sample_rate > server.limits.call_s:
        text = f"a call may last {server.limits.call_s:g} s: start another one"
        raise RefusedError(413, "length", text)
