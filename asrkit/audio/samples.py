"""Samples in memory: errors, limits, mono from several channels."""

import io
import math
from pathlib import Path
from typing import BinaryIO

import numpy as np

from asrkit.errors import UserError, shown

MIN_RATE, MAX_RATE = 1000, 768000  # Hz
MAX_CHANNELS = 64
MAX_SECONDS = 100 * 3600  # longest file; a header that states more was written without the length
TOLERANCE = 0.1  # seconds by which headers and time stamps may differ from samples without a line
LOUDEST = 100.0  # largest float sample: 40 dB above full scale, more than mixes or recorders reach
CANCELLED_DB = -12.0  # `mix_db` below which channels cancel each other out

Source = str | Path | io.BytesIO
IN_MEMORY = "audio in memory"  # its name in messages


class AudioError(UserError):
    """Audio that cannot be used; the message has its name, the problem, and what would be right."""


def channel_name(channel: int) -> str:
    """Return the name of a channel whose speaker has none."""
    return f"channel {channel}"


def source_of(value: object) -> Source | None:
    """Return a path, the bytes of an audio file, or an open binary file as a source.

    Return None for other values. An open file is read from its position to its end.
    """
    if isinstance(value, (str, Path)):
        return value
    read = getattr(value, "read", None)
    data = read() if callable(read) else value
    if isinstance(data, str):
        raise AudioError("audio must be read from a binary file: open it with mode 'rb'")
    if not isinstance(data, (bytes, bytearray, memoryview)):
        return None
    if not len(data):
        raise AudioError(f"{IN_MEMORY} is empty (0 bytes)")
    return io.BytesIO(data)


def name_of(source: Source) -> str:
    """Return a file's name for messages."""
    return shown(Path(source), 300) if isinstance(source, (str, Path)) else IN_MEMORY


def bytes_of(source: Source) -> BinaryIO:
    """Open a file, or bytes in memory, for reading without a buffer from the first byte."""
    if isinstance(source, (str, Path)):
        return Path(source).open("rb", buffering=0)
    return io.BytesIO(source.getbuffer())


def mix_db(mixed: float, channels: "np.ndarray | float") -> float:
    """Return the level of a mix in decibels from -100, by its energy and those of its channels.

    It is relative to independent channels: 0 for these, for silence, and if only a single channel
    has sound, as in a film with speech in the centre.
    """
    independent = float(np.sum(channels)) / np.size(channels) ** 2
    return 10.0 * math.log10(max(mixed / independent, 1e-10)) if independent else 0.0


def no_channel(name: str, channel: int, num_channels: int) -> AudioError:
    """Return the error for a channel that a recording does not have."""
    has = f"the channels 0 to {num_channels - 1}" if num_channels > 1 else "one channel, number 0"
    return AudioError(f"{name} has {has}, got channel {channel}")


def mono(samples: object, channel: int | None = None, name: str = "the audio") -> np.ndarray:
    """Return float samples (n,) in [-1, 1] from int16 or float samples (n,) or (n, channels).

    They are the mean of the channels, or one channel. Float samples may exceed 1 up to LOUDEST, as
    mixes do. Larger ones are usually int16 values without scaling.
    """
    array = array_of(samples)
    if array.ndim not in (1, 2):
        raise AudioError(f"samples must be (n,) or (n, channels), got shape {array.shape}")
    if array.ndim == 2 and not 1 <= array.shape[1] <= MAX_CHANNELS:
        raise AudioError(f"samples must be (n, channels), got {array.shape}: transpose them?")
    if channel is not None:
        channels = array[:, None] if array.ndim == 1 else array
        if not 0 <= channel < channels.shape[1]:
            raise no_channel(name, channel, channels.shape[1])
        array = channels[:, channel]
    if array.dtype == np.int16:
        array = array.astype(np.float32) / 32768.0
    # Comparisons with NaN are false.
    if not (array.max(initial=0.0) <= LOUDEST and array.min(initial=0.0) >= -LOUDEST):
        bad = ~(np.abs(array) <= LOUDEST)
        raise AudioError(
            f"float samples must be in [-1, 1], but sample {np.argwhere(bad)[0, 0]} is "
            f"{array[bad][0]:g}; divide values in the range of int16 by 32768, or pass int16"
        )
    if array.ndim == 2:
        return array.mean(axis=1)
    return np.require(array, requirements=["C", "W"])  # torch needs writable, contiguous arrays


def apart(samples: np.ndarray) -> np.ndarray:
    """Return float samples (n, channels) like `mono`, with the channels kept apart."""
    array = array_of(samples)
    return np.stack([mono(array, channel) for channel in range(array.shape[1])], axis=1)


def array_of(samples: object) -> np.ndarray:
    """Return samples of any shape as an array of int16, float32 or float64."""
    try:
        array = np.asarray(samples)
    except (TypeError, ValueError, RuntimeError):  # ragged lists; tensors of another device
        array = np.empty(0, dtype=object)
    if array.dtype in (np.int16, np.float32, np.float64):
        return array
    got = array.dtype if isinstance(samples, np.ndarray) else type(samples).__name__
    raise AudioError(
        f"samples must be a float32 or int16 array, got {got}; np.frombuffer(data, dtype=np.int16) "
        "reads bytes"
    )
