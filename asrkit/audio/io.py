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
from asrkit.errors import UserError, shown, whole_number

logger = logging.getLogger(__name__)

MAX_CHANNELS = 64
LOUDEST = 100.0  # of a float sample: 40 dB beyond full scale, more than any mix or recorder
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

    Float samples may exceed 1, as those of mixes do, up to LOUDEST: beyond it are none of audio,
    but for those of int16's range that were not scaled. What is so quiet cannot be told from audio.

    Raises:
        AudioError: for another dtype or shape, or samples that are not finite or beyond LOUDEST.
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
        raise AudioError(beyond(samples))
    if samples.ndim == 2:
        return samples.mean(axis=1)
    return np.require(samples, requirements=["C", "W"])  # as torch takes them


def array_of(samples: object) -> np.ndarray:
    """Samples of any shape as an array of int16, float32 or float64.

    Raises:
        AudioError: for what is none.
    """
    try:
        array = np.asarray(samples)
    except (TypeError, ValueError, RuntimeError):  # ragged lists; tensors of another device
        array = np.empty(0, dtype=object)
    if array.dtype in (np.int16, np.float32, np.float64):
        return array
    got = type(samples).__name__ if array.dtype.kind in "OSUV" else str(array.dtype)
    hint = ""
    if isinstance(samples, (bytes, bytearray, memoryview)):
        got = type(samples).__name__
        hint = "; of 16-bit samples, np.frombuffer(data, dtype=np.int16) makes them"
    elif isinstance(samples, (str, Path)):
        hint = "; transcribe takes the path of a file"
    raise AudioError(f"samples must be float32 or int16, got {got}{hint}")


def beyond(samples: np.ndarray) -> str:
    """What to say of samples, (n,) or (n, channels), some of which are none of audio."""
    bad = ~(np.abs(samples) <= LOUDEST)
    first, value = int(np.argwhere(bad)[0, 0]), samples[bad][0]
    if not np.isfinite(value):
        count = np.count_nonzero(~np.isfinite(samples))
        return (
            f"samples must be finite, but sample {first} is {value} ({count} of {bad.size} are not)"
        )
    return (
        f"float samples must be in [-1, 1], but sample {first} is {value:g}; "
        "divide those of int16's range by 32768, or pass int16"
    )


class Resampler:
    """Samples of one stream at another rate; the output does not depend on the packets.

    Args:
        rate: of the input, Hz, a whole number.
        output_rate: of the output, Hz.
        dtype: "float32" or "float64".

    Raises:
        AudioError: for a rate out of range.
    """

    def __init__(self, rate: int, output_rate: int = SAMPLE_RATE, dtype: str = "float32") -> None:
        whole = whole_number(rate, 1000, 768000)
        if whole is None:
            raise AudioError(
                f"sample rate must be between 1000 and 768000 Hz, a whole number, got {shown(rate)}"
            )
        self.rate, self.dtype = whole, dtype
        self._stream = None
        if whole != output_rate:
            self._stream = soxr.ResampleStream(whole, output_rate, 1, dtype=dtype)

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
