"""An audio file that is open for reading, and lines about files that are not read whole."""

from collections.abc import Iterator

import numpy as np

from asrkit.audio.resampler import is_usual
from asrkit.audio.samples import CANCELLED_DB, MAX_CHANNELS, AudioError, mix_db, mono

PADDING = 8  # bytes after the samples that only fill the last chunk


class AudioFile:
    """An audio file that is open for reading.

    Attributes:
        name: name of the file in messages.
        sample_rate: Hz.
        num_channels: channels, at most MAX_CHANNELS.
        num_samples: samples of a channel if the header counts them exactly; otherwise None, and
            only reading to the end counts them.
        problems: a line for each part that is not read, without the name, and one if the channels
            of a mean cancelled each other out. The list is complete when `blocks` has reached its
            end.
    """

    def __init__(
        self, name: str, sample_rate: int, num_channels: int, num_samples: int | None
    ) -> None:
        self.name, self.sample_rate, self.num_channels = name, sample_rate, num_channels
        self.num_samples = num_samples
        self.problems: list[str] = []
        self._mixed = 0.0  # energy of the mean of the channels
        self._energies: np.ndarray | float = 0.0  # energy of each channel
        if not (is_usual(sample_rate) and 1 <= num_channels <= MAX_CHANNELS):
            raise AudioError(
                f"{name} must have 1 to {MAX_CHANNELS} channels at a usual rate, such as 8000, "
                f"16000, 44100 or 48000 Hz, got {num_channels} at {sample_rate} Hz"
            )

    def samples(self, first: int, count: int | None) -> Iterator[np.ndarray]:
        """Yield `count` samples (n, channels) from `first` on; append to `problems`."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def blocks(self, size: int, first: int = 0, count: int | None = None) -> Iterator[np.ndarray]:
        """Read samples (n, channels) in float32, n = `size` except in the last block.

        The first block begins at sample `first`; all have `count` samples, or for None the rest.
        """
        self.problems, self._mixed, self._energies = [], 0.0, 0.0
        waiting, length = [np.zeros((0, self.num_channels), np.float32)], 0
        for part in self.samples(first, count):
            waiting.append(part)
            length += len(part)
            if length >= size:
                *whole, rest = np.split(np.concatenate(waiting), range(size, length + 1, size))
                yield from whole
                waiting, length = [rest], len(rest)
        if length:
            yield np.concatenate(waiting)
        if (level := mix_db(self._mixed, self._energies)) < CANCELLED_DB:
            self.problems.append(
                f"has channels that cancel each other out: their mix is {-level:.0f} dB below that "
                f"of independent channels; --channel {np.argmax(self._energies)} reads the loudest"
            )

    def mean(self, block: np.ndarray) -> np.ndarray:
        """Return the mean (n,) of a block's channels."""
        samples = mono(block)
        if self.num_channels > 1:
            self._energies = self._energies + np.square(block, dtype=np.float64).sum(axis=0)
            self._mixed += float(np.square(samples, dtype=np.float64).sum())
        return samples

    def count(self) -> int:
        """Return the number of samples of a channel; read the file if the header lacks it."""
        if self.num_samples is None:
            self.num_samples = sum(len(block) for block in self.blocks(self.sample_rate))
        return self.num_samples


def cut_off(seconds: float) -> str:
    """Return the line about a file that lacks its end, by `seconds` if that is positive."""
    end = f"it ends {seconds:.2f} s before its header says" if seconds > 0 else "it lacks its end"
    return f"is cut off: {end}; the audio there is used"


def bytes_after(count: int) -> str:
    """Return the line about bytes behind a file's samples."""
    return (
        f"holds {count} bytes after its samples, perhaps of another file or of a recorder that did "
        "not write its length; they are not read"
    )
