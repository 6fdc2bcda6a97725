"""Samples of cuts: asrkit's reader with lhotse's transforms; every failure is an AudioError."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from lhotse.audio.backend import (
    LibsndfileBackend,
    get_current_audio_backend,
    set_current_audio_backend,
)
from lhotse.cut import Cut

from asrkit import audio
from asrkit.audio.files import refuse_too_many
from asrkit.audio.samples import name_of
from asrkit.errors import printable

OTHER_LENGTH = "declared samples in the recording diverged"  # in lhotse's message


def load_samples(cut: Cut) -> np.ndarray:
    """Load the samples of a cut with all its lhotse transforms: float32 mono (n,) at 16 kHz."""
    mixer = audio.Mixer(cut.id)
    samples = mixer(audio_of(cut).T)
    mixer.warn()
    return np.ascontiguousarray(audio.resample(samples, cut.sampling_rate), dtype=np.float32)


def audio_of(cut: Cut) -> np.ndarray:
    """Load the samples of a cut with all its lhotse transforms: (channels, n) at its own rate."""
    try:
        refuse_too_many(cut.duration * cut.sampling_rate, cut.num_channels)
        with _READER.expect(rates_of_files(cut)):
            samples: np.ndarray = cut.load_audio()
    except Exception as error:  # lhotse and its decoders raise a dozen unrelated types
        reason = str(error).partition("[extra info]")[0]  # lhotse appends the whole cut
        if OTHER_LENGTH in reason and _READER.last is not None:
            name, seconds = _READER.last
            reason = (
                f"{name} has {seconds:.2f} s, which is not the length in the manifest: "
                "correct duration (num_samples in lhotse's cuts), or remove sample_rate from its "
                "line to use the file's header"
            )
        elif not isinstance(error, audio.AudioError):
            reason = f"{type(error).__name__}: {reason}"
        raise audio.AudioError(printable(" ".join(reason.split())[:500])) from error
    return samples


def rates_of_files(cut: Cut) -> set[int]:
    """Return the sample rates in Hz of a cut's files, before lhotse's transforms."""
    parts = [track.cut for track in cut.tracks] if hasattr(cut, "tracks") else [cut]
    found = set()
    for recording in (part.recording for part in parts if part.has_recording):
        stated = [transform.to_dict() for transform in recording.transforms or ()]
        sources = [each["kwargs"].get("source_sampling_rate") for each in stated]
        found.add(next(filter(None, sources), recording.sampling_rate))
    return found


class _Reader(threading.local, LibsndfileBackend):
    """A backend of lhotse that reads audio with asrkit's reader, with asrkit's errors.

    A sample rate that differs from the file's is an error. lhotse would silently read other samples
    for a part of a file, and report the whole recording object for a whole file.

    lhotse has one backend for all threads. This backend is set while any thread reads; the expected
    rates are stored per thread. A thread that only uses lhotse at this time expects no rates.
    """

    _lock = threading.Lock()
    _threads = 0  # threads that read now
    _before: Any = None  # lhotse's own backend

    def __init__(self) -> None:
        self.stated: set[int] | None = None  # sample rates of the files, in Hz
        self.last: tuple[str, float] | None = None  # name and seconds that were read

    @contextmanager
    def expect(self, stated: set[int]) -> Iterator[None]:
        """Use this backend in a block; `stated` are the expected sample rates of files, in Hz."""
        self.stated, self.last = stated, None
        with _Reader._lock:
            if _Reader._threads == 0:
                _Reader._before = get_current_audio_backend()
                set_current_audio_backend(self)
            _Reader._threads += 1
        try:
            yield
        finally:
            self.stated = None
            with _Reader._lock:
                _Reader._threads -= 1
                if _Reader._threads == 0:
                    set_current_audio_backend(_Reader._before)

    def read_audio(  # type: ignore[no-untyped-def]
        self, path_or_fd, offset=0.0, duration=None, force_opus_sampling_rate=None
    ):
        samples, rate = audio.read(path_or_fd, offset, duration)
        if self.stated is not None and rate not in self.stated:
            wrong = " or ".join(map(str, sorted(self.stated)))
            raise audio.AudioError(
                f"{name_of(path_or_fd)}: the manifest has {wrong} Hz, the file has {rate} Hz: "
                "remove sample_rate from its line, or correct it (sampling_rate in lhotse's cuts)"
            )
        self.last = name_of(path_or_fd), len(samples) / rate
        return samples.T, rate

    def is_applicable(self, path_or_fd: object) -> bool:
        return True


_READER = _Reader()
