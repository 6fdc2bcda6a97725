"""An hour of audio: memory that does not grow with it (slow)."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.running import python

PROGRAM = """
import resource, sys
from asrkit.__main__ import main
assert main(sys.argv[1:]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["decode", "stream"])
def test_an_hour_needs_no_more_memory_than_ten_minutes(command: str, model: Path) -> None:
    """A stream has segments, as on a screen, and a second pass over each."""
    peaks = {}
    for minutes in (10, 60):
        path, draw = model.with_name(f"{minutes}.wav"), np.random.default_rng(0)
        with soundfile.SoundFile(path, "w", 16000, 1) as file:
            for _ in range(minutes):
                file.write(draw.standard_normal(60 * 16000).astype(np.float32) * 0.1)
        done = python(PROGRAM, command, "--model", model, path)
        assert done.stdout.strip(), done.stderr
        peaks[minutes] = float(done.stderr.splitlines()[-1])
    assert peaks[60] - peaks[10] < 50  # MB
