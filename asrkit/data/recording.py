"""A recording with its text: a line of a manifest, whose audio is read on demand."""

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from asrkit import audio
from asrkit.audio.samples import (
    MAX_CHANNELS,
    MAX_RATE,
    MAX_SECONDS,
    MIN_RATE,
    TOLERANCE,
    Source,
    name_of,
    no_channel,
)

PIECE_SECONDS = 60.0  # seconds of a recording that are read at a time
MAX_TRACKS = 1 << 16
MAX_BYTES = 1 << 30  # of a recording inside another file
ROUNDING = 0.025  # seconds that a file may be shorter than a duration that replaces its header

Name = Annotated[str, Field(max_length=1000)]


class Recording(BaseModel):
    """A recording, or a part of one, with its text if known."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    id: Name
    audio: Annotated[str, Field(max_length=4096)]  # in a manifest, relative to its folder
    text: Annotated[str, Field(max_length=1_000_000)] | None = None
    speaker: Name | None = None
    # The part of the file to use, in seconds.
    start: Annotated[float, Field(ge=0.0, le=MAX_SECONDS)] | None = None
    duration: Annotated[float, Field(gt=0.0, le=MAX_SECONDS)] | None = None
    channel: Annotated[int, Field(ge=0, lt=MAX_CHANNELS)] | None = None  # from 0; None for the mean
    # Number of the audio track, from 0; None for the default one.
    track: Annotated[int, Field(ge=0, lt=MAX_TRACKS)] | None = None
    # With `duration` and these two, the file's header is not read.
    sample_rate: Annotated[int, Field(ge=MIN_RATE, le=MAX_RATE)] | None = None
    num_channels: Annotated[int, Field(ge=1, le=MAX_CHANNELS)] = 1
    # The bytes of `audio` that are the recording's file, such as a member of a tar; None for all.
    first_byte: Annotated[int, Field(ge=0, lt=1 << 62)] = 0
    num_bytes: Annotated[int, Field(gt=0, le=MAX_BYTES)] | None = None

    def source(self) -> Source:
        """Return the file, or its part in memory, as the functions of `asrkit.audio` read it."""
        return part_of_bytes(self.audio, self.first_byte, self.num_bytes)

    def blocks(self) -> Iterator[tuple[np.ndarray, int]]:
        """Yield mono samples (n,) of at most PIECE_SECONDS, and the sample rate in Hz."""
        return audio.blocks(
            self.source(), PIECE_SECONDS, self.start or 0.0, self.duration, self.channel, self.track
        )

    def load(self) -> np.ndarray:
        """Return all samples (n,) in float32 at 16 kHz."""
        return audio.load(self.source(), self.start or 0.0, self.duration, self.channel, self.track)

    def measured(self) -> "Recording":
        """Return the recording with duration, rate and channels, from the header if one lacks."""
        start, duration, rate = self.start or 0.0, self.duration, self.sample_rate
        if duration and rate and not start and not self.channel:
            num_samples, num_channels = round(duration * rate), self.num_channels
        else:
            rate, num_samples, num_channels = audio.info(self.source(), self.track)
        rest = num_samples / rate - start
        if rest <= 0:
            raise audio.AudioError(
                f"start must be below {num_samples / rate:.2f} s, the length of {self.audio}, got "
                f"{start} s"
            )
        if duration and duration > rest + TOLERANCE:
            missing = audio.outside(start, start + duration, num_samples / rate)
            raise audio.AudioError(f"{self.audio} {missing}: correct start and duration")
        duration = min(duration or rest, rest)
        if self.channel is not None and self.channel >= num_channels:
            raise no_channel(self.audio, self.channel, num_channels)
        facts = {"duration": duration, "sample_rate": rate, "num_channels": num_channels}
        return self.model_copy(update=facts)

    def read(self) -> tuple[np.ndarray, int]:
        """Return the samples (n, channels) of a measured recording, and the sample rate in Hz.

        Raises:
            AudioError: also for a file that contradicts the manifest.
        """
        assert self.duration is not None
        name = name_of(Path(self.audio))
        samples, rate = audio.read(self.source(), self.start or 0.0, self.duration, self.track)
        self.check_rate(rate)
        if len(samples) < (self.duration - ROUNDING) * rate:
            raise audio.AudioError(
                f"{name} has {len(samples) / rate:.2f} s, the manifest {self.duration:.2f} s: "
                "correct duration, or remove it from its line to use the file's header"
            )
        return samples if self.channel is None else samples[:, [self.channel]], rate

    def check_rate(self, rate: int) -> None:
        """Raise AudioError if the file's rate contradicts the manifest."""
        if self.sample_rate not in (None, rate):
            raise audio.AudioError(
                f"{name_of(Path(self.audio))}: the manifest has {self.sample_rate} Hz, the file "
                f"has {rate} Hz: remove sample_rate from its line, or correct it"
            )


def part_of_bytes(path: str, first_byte: int, num_bytes: int | None) -> Source:
    """Return a part of a file in memory; the file itself if `num_bytes` is None."""
    if num_bytes is None:
        return path
    name = name_of(Path(path))
    try:
        with open(path, "rb") as file:
            file.seek(first_byte)
            data = file.read(num_bytes)
    except OSError as error:
        raise audio.AudioError(f"{name} cannot be read: {error.strerror or error}") from error
    if len(data) < num_bytes:
        raise audio.AudioError(f"{name} ends before byte {first_byte + num_bytes}")
    return io.BytesIO(data)


def timed(
    blocks: Iterable[tuple[np.ndarray, int]], read: Callable[[float], object]
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the blocks; call `read` with the seconds of each."""
    for block, rate in blocks:
        read(len(block) / rate)
        yield block, rate
