"""Reading audio, streaming resampling, stereo to mono."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import soxr

from asrkit.audio.fbank import SAMPLE_RATE
from asrkit.errors import UserError

logger = logging.getLogger(__name__)

MAX_CHANNELS = 64
MAX_SECONDS = 100 * 3600  # of one file; a header that claims more does not know


class AudioError(UserError):
    """Audio that cannot be used; the message says which, why, and what would be right."""


class AudioInfo(NamedTuple):
    sample_rate: int  # Hz
    num_samples: int
    num_channels: int


def info(path: str | Path) -> AudioInfo:
    """Header of an audio file.

    Raises:
        AudioError: if the file is missing, empty, or not audio.
    """
    with opened(path) as file:
        return AudioInfo(file.samplerate, file.frames, file.channels)


def read(
    path: str | Path, start: float = 0.0, duration: float | None = None
) -> tuple[np.ndarray, int]:
    """Part of a file as float32 samples (n, channels) at its own rate, and the rate in Hz.

    Raises:
        AudioError: if the file is missing, empty, not audio, or ends before `start`.
    """
    with opened(path) as file:
        wanted = seek(file, path, start, duration)
        samples = file.read(wanted, dtype="float32", always_2d=True)
        warn_if_short(path, file, wanted, len(samples))
        return samples, file.samplerate


def seek(file: soundfile.SoundFile, path: str | Path, start: float, duration: float | None) -> int:
    """Go to `start`; how many samples from there are meant, by the header.

    Raises:
        AudioError: if the file ends before `start`, or `start` is negative.
    """
    first = round(start * file.samplerate)
    if not 0 <= first <= file.frames:
        seconds = file.frames / file.samplerate
        raise AudioError(f"{path} has {seconds:.2f} s; start {start} s is not in it")
    file.seek(first)
    rest = file.frames - first
    return rest if duration is None else min(rest, round(duration * file.samplerate))


def warn_if_short(path: str | Path, file: soundfile.SoundFile, wanted: int, got: int) -> None:
    """Say that a file was cut off: half of it is better than none, but not the same."""
    if got < wanted - file.samplerate // 10:  # lossy formats promise a little too much
        logger.warning(
            "%s is cut off: it ends %.2f s before its header says; used as far as it goes",
            path, (wanted - got) / file.samplerate,
        )  # fmt: skip


def load(path: str | Path) -> np.ndarray:
    """A whole file as float32 mono samples (n,) at 16 kHz."""
    samples, rate = read(path)
    return resample(mono(samples), rate)


def blocks(
    path: str | Path, seconds: float = 10.0, start: float = 0.0, duration: float | None = None
) -> Iterator[tuple[np.ndarray, int]]:
    """Part of a file piece by piece, so that an hour of audio never lies in memory at once."""
    with opened(path) as file:
        rate = file.samplerate
        wanted = seek(file, path, start, duration)
        size, got = max(1, round(seconds * rate)), 0
        # Not file.blocks: it repeats old samples when a file is shorter than its header says.
        while got < wanted:
            block = file.read(min(size, wanted - got), dtype="float32", always_2d=True)
            if not len(block):
                break
            got += len(block)
            yield block, rate
        warn_if_short(path, file, wanted, got)


def mono(samples: np.ndarray) -> np.ndarray:
    """Float samples (n,) in [-1, 1] from int16 or float samples, (n,) or (n, channels).

    Raises:
        AudioError: for another dtype or shape, or samples that are not finite.
    """
    samples = np.asarray(samples)
    if samples.dtype == np.int16:
        samples = samples.astype(np.float32) / 32768.0
    if samples.dtype not in (np.float32, np.float64):
        raise AudioError(f"samples must be float32 or int16, got {samples.dtype}")
    if samples.ndim not in (1, 2):
        raise AudioError(f"samples must be (n,) or (n, channels), got shape {samples.shape}")
    if samples.ndim == 2 and samples.shape[1] > MAX_CHANNELS:
        raise AudioError(f"samples must be (n, channels), got {samples.shape}: transpose them?")
    if samples.ndim == 2:
        samples = samples.mean(axis=1)
    finite = np.isfinite(samples)
    if not finite.all():
        first = int(np.argmin(finite))
        raise AudioError(
            f"samples must be finite, but sample {first} is {samples[first]} "
            f"({np.count_nonzero(~finite)} of {len(samples)} are not)"
        )
    return samples


class Resampler:
    """Samples of one stream at another rate; the output does not depend on the packets.

    Args:
        rate: of the input, Hz.
        output_rate: of the output, Hz.
        dtype: "float32" or "float64".
    """

    def __init__(self, rate: int, output_rate: int = SAMPLE_RATE, dtype: str = "float32") -> None:
        if not 1000 <= rate <= 768000:
            raise AudioError(f"sample rate must be between 1000 and 768000 Hz, got {rate}")
        self.dtype = dtype
        self._stream = None
        if rate != output_rate:
            self._stream = soxr.ResampleStream(rate, output_rate, 1, dtype=dtype)

    def __call__(self, samples: np.ndarray, last: bool = False) -> np.ndarray:
        """Mono samples (n,), any n -> the samples that are ready; all of them after `last`."""
        samples = np.ascontiguousarray(samples, dtype=self.dtype)
        if self._stream is None:
            return samples
        return self._stream.resample_chunk(samples, last=last)


def resample(samples: np.ndarray, rate: int, output_rate: int = SAMPLE_RATE) -> np.ndarray:
    """All of a stream at once: (n,) -> (n·output_rate/rate,)."""
    return Resampler(rate, output_rate)(samples, last=True)


@contextmanager
def opened(path: str | Path) -> Iterator[soundfile.SoundFile]:
    """The file open for reading, with errors that say what is wrong with it.

    soundfile reads wav, flac, mp3, ogg and opus; PyAV, when installed, the rest.
    """
    path = Path(path)
    if not path.is_file():
        raise AudioError(f"{path} does not exist" if not path.exists() else f"{path} is no file")
    if path.stat().st_size == 0:
        raise AudioError(f"{path} is empty (0 bytes)")
    try:
        file = soundfile.SoundFile(path)
    except soundfile.LibsndfileError as error:
        file = decoded_by_av(path, error)
    except TypeError as error:  # soundfile takes .raw for headerless samples
        raise AudioError(
            f"{path} is headerless audio: give it a header, or stream it as -"
        ) from error
    with file:
        if file.frames > MAX_SECONDS * file.samplerate:
            raise AudioError(f"{path} does not know its own length: convert it to wav first")
        if file.frames == 0:
            raise AudioError(f"{path} has a header but no samples")
        try:
            yield file
        except soundfile.LibsndfileError as error:
            raise AudioError(f"{path} is damaged: {error.error_string}") from error


def decoded_by_av(path: Path, error: soundfile.LibsndfileError) -> soundfile.SoundFile:
    """The same interface for what only FFmpeg reads (m4a, webm, …), decoded to a temporary file."""
    import tempfile

    try:
        import av
    except ImportError:
        raise AudioError(
            f"{path} is not audio that soundfile reads ({error.error_string}); "
            "for m4a, webm and others: pip install 'asrkit[av]'"
        ) from error
    try:
        with av.open(str(path)) as container:
            stream = container.streams.audio[0]
            channels = min(2, stream.channels)
            layout = "mono" if channels == 1 else "stereo"
            resampler = av.AudioResampler(format="flt", layout=layout, rate=stream.rate)
            storage = tempfile.TemporaryFile()  # noqa: SIM115 - closed by who closes the SoundFile
            file = soundfile.SoundFile(
                storage, "w+", stream.rate, channels, format="WAV", subtype="FLOAT"
            )
            for frame in chain(container.decode(stream), [None]):
                for part in filter(None, resampler.resample(frame)):
                    file.write(part.to_ndarray().reshape(-1, file.channels))
    except (av.FFmpegError, IndexError) as av_error:
        raise AudioError(
            f"{path} is not audio that soundfile or FFmpeg reads ({error.error_string})"
        ) from av_error
    file.seek(0)
    return file
