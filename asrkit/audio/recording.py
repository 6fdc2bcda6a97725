"""Keeping what was heard: a file that is written while it comes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import soundfile

from asrkit.audio.file import AudioError

SUBTYPES = {".wav": "FLOAT", ".flac": "PCM_24"}  # float32 as it is; the best FLAC has


def check_recording(path: str) -> None:
    """Find out early that nothing can be recorded into a file.

    A recording cannot be made again: unlike what can be computed, it replaces no other file.

    Raises:
        AudioError: for another kind of file, or one that exists.
    """
    if Path(path).suffix.lower() not in SUBTYPES:
        raise AudioError(f"a recording is a {' or '.join(SUBTYPES)} file, got {path}")
    if Path(path).exists():
        raise AudioError(f"{path} exists already, and a recording replaces nothing: choose another")


@contextmanager
def recording(path: str, sample_rate: int) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that appends mono samples (n,) to a new file; it is complete after the block.

    Raises:
        AudioError: if the file cannot be written.
    """
    check_recording(path)
    subtype = SUBTYPES[Path(path).suffix.lower()]
    try:
        with soundfile.SoundFile(path, "x", sample_rate, 1, subtype) as file:
            yield file.write
    except soundfile.LibsndfileError as error:  # a full disk, a folder that is not there
        raise AudioError(f"{path} cannot be written: {error.error_string}") from None
