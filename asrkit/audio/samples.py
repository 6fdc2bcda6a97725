"""Samples in memory: errors, limits, mono from several channels."""

import io
import logging
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

logger = logging.getLogger(__name__)


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


class Mixer:
    """Converts blocks (n, channels) of one recording to mono (n,): the mean, or one channel."""

    def __init__(self, name: str, channel: int | None = None) -> None:
        self.name, self.channel = name, channel
        self._energies: np.ndarray | float = 0.0  # energy of each channel
        self._mixed = 0.0  # energy of the mix

    def __call__(self, block: object) -> np.ndarray:
        """Return the mono samples of a block (n, channels) or (n,), float32 or int16."""
        samples = array_of(block)
        channels = samples.shape[1] if samples.ndim == 2 else 1
        if self.channel is not None:
            if not 0 <= self.channel < channels:
                raise no_channel(self.name, self.channel, channels)
            return mono(samples if samples.ndim == 1 else samples[:, self.channel])
        mixed = mono(samples)
        if channels > 1:
            scale = 32768.0 if samples.dtype == np.int16 else 1.0
            energies = np.square(samples / scale, dtype=np.float64).sum(axis=0)
            self._energies = self._energies + energies
            self._mixed += float(np.square(mixed, dtype=np.float64).sum())
        return mixed

    def problems(self) -> list[str]:
        """Return a line if the channels cancelled each other out."""
        level = mix_db(self._mixed, self._energies)
        if level >= CANCELLED_DB:
            return []
        channel = int(np.argmax(self._energies))
        return [
            f"has channels that cancel each other out: their mix is {-level:.0f} dB below that "
            f"of independent channels; --channel {channel} reads only the loudest one"
        ]

    def warn(self) -> None:
        """Log the problem, if there is one."""
        for problem in self.problems():
            logger.warning("%s %s", self.name, problem)


def mono(samples: np.ndarray) -> np.ndarray:
    """Return float samples (n,) in [-1, 1] from int16 or float samples (n,) or (n, channels).

    Float samples may exceed 1 up to LOUDEST, as mixes do. Larger ones are usually int16 values
    without scaling.
    """
    samples = array_of(samples)
    if samples.ndim not in (1, 2):
        raise AudioError(f"samples must be (n,) or (n, channels), got shape {samples.shape}")
    if samples.ndim == 2 and not 1 <= samples.shape[1] <= MAX_CHANNELS:
        raise AudioError(f"samples must be (n, channels), got {samples.shape}: transpose them?")
    if samples.dtype == np.int16:
        samples = samples.astype(np.float32) / 32768.0
    # Comparisons with NaN are false.
    if not (samples.max(initial=0.0) <= LOUDEST and samples.min(initial=0.0) >= -LOUDEST):
        raise AudioError(out_of_range(samples))
    if samples.ndim == 2:
        return samples.mean(axis=1)
    return np.require(samples, requirements=["C", "W"])  # torch needs writable, contiguous arrays


def apart(samples: np.ndarray) -> np.ndarray:
    """Return float samples (n, channels) like `mono`, with the channels kept apart."""
    return np.stack([mono(channel) for channel in array_of(samples).T], axis=1)


def array_of(samples: object) -> np.ndarray:
    """Return samples of any shape as an array of int16, float32 or float64."""
    try:
        array = np.asarray(samples)
    except (TypeError, ValueError, RuntimeError):  # ragged lists; tensors of another device
        array = np.empty(0, dtype=object)
    if array.dtype in (np.int16, np.float32, np.float64):
        return array
    got = array.dtype if isinstance(samples, np.ndarray) else type(samples).__name__
    hint = ""
    if isinstance(samples, (bytes, bytearray, memoryview)):
        hint = "; for 16-bit samples use np.frombuffer(data, dtype=np.int16)"
    elif isinstance(samples, (str, Path)):
        hint = "; pass the path of a file to transcribe"
    raise AudioError(f"samples must be float32 or int16, got {got}{hint}")


def out_of_range(samples: np.ndarray) -> str:
    """Return the message for samples (n,) or (n, channels) that are not finite or too large."""
    bad = ~(np.abs(samples) <= LOUDEST)
    first, value = int(np.argwhere(bad)[0, 0]), samples[bad][0]
    if not np.isfinite(value):
        return f"samples must be finite, but sample {first} is {value}"
    return (
        f"float samples must be in [-1, 1], but sample {first} is {value:g}; divide values in the "
        "range of int16 by 32768, or pass int16"
    )
