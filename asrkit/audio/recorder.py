"""Recording a stream into a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import soundfile

from asrkit.audio.file import AudioError

SUBTYPES = {".wav": "FLOAT", ".flac": "PCM_24"}  # float32 unchanged; FLAC's highest precision


def check_recording(path: str) -> None:
    """Refuse a path that a recording cannot be written to, before it starts.

    A recording cannot be made again, so it never replaces a file.

    Raises:
        AudioError: for another ending than .wav or .flac, or a file that exists.
    """
    if Path(path).suffix.lower() not in SUBTYPES:
        raise AudioError(f"a recording is a {' or '.join(SUBTYPES)} file, got {path}")
    if Path(path).exists():
        raise AudioError(f"{path} exists already, and a recording replaces nothing: choose another")


@contextmanager
def recording(path: str, sample_rate: int) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that appends mono samples (n,) to a new file, which is closed after the block.

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
