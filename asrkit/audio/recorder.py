"""Recording a stream into a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import soundfile

from asrkit.audio.samples import AudioError

SUBTYPES = {".wav": "FLOAT", ".flac": "PCM_24"}  # float32 unchanged; FLAC's highest precision


def check_recording(path: str) -> None:
    """Check before the recording starts that it can be written to a path.

    A recording cannot be repeated, so it never replaces a file.
    """
    if Path(path).suffix.lower() not in SUBTYPES:
        raise AudioError(f"a recording needs a {' or '.join(SUBTYPES)} file, got {path}")
    if Path(path).exists():
        raise AudioError(f"{path} exists already and is not replaced: choose another file name")
    if not (folder := Path(path).parent).is_dir():  # libsndfile names it "System error"
        raise AudioError(f"{path} cannot be written: make the folder {folder} first")


@contextmanager
def recording(
    path: str, sample_rate: int, channels: int = 1
) -> Iterator[Callable[[np.ndarray], None]]:
    """Return a function that appends samples (n,) or (n, channels) to a new file."""
    check_recording(path)
    subtype = SUBTYPES[Path(path).suffix.lower()]
    try:
        with soundfile.SoundFile(path, "x", sample_rate, channels, subtype) as file:
            yield file.write
    except soundfile.LibsndfileError as error:  # for example a full disk
        raise AudioError(f"{path} cannot be written: {error.error_string}") from None
