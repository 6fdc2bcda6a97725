"""Recording a stream into a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import soundfile

from asrkit.audio.samples import AudioError
from asrkit.errors import reason

SUBTYPES = {".wav": "FLOAT", ".flac": "PCM_24"}  # float32 unchanged; FLAC's highest precision


@contextmanager
def recording(
    path: str, sample_rate: int, channels: int = 1
) -> Iterator[Callable[[np.ndarray], None]]:
    """Return a function that appends samples (n,) or (n, channels) to a new file.

    A recording cannot be repeated, so it never replaces a file.
    """
    if (subtype := SUBTYPES.get(Path(path).suffix.lower())) is None:
        raise AudioError(f"a recording needs a {' or '.join(SUBTYPES)} file, got {path}")
    try:
        file = soundfile.SoundFile(path, "x", sample_rate, channels, subtype)
    except (OSError, soundfile.LibsndfileError) as error:
        raise AudioError(f"a recording needs a new file in a folder: {reason(error)}") from None
    try:
        with file:
            yield file.write
    except soundfile.LibsndfileError as error:  # for example a full disk
        raise AudioError(f"{path} cannot be written: {error.error_string}") from None
