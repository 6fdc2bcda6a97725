"""An hour of audio: memory that does not grow with it (slow)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.test_model_file import a_file

PROGRAM = """
import json, resource, sys, time
import numpy as np
from asrkit.runtime import recognizer_of
from asrkit.text import CharTokenizer
from tests.conftest import spoken
from tests.test_model_file import a_file
recognizer = recognizer_of(a_file(CharTokenizer(list("abcdefghij "))))
session = recognizer.start()
draw = np.random.default_rng(0)
times, peaks = [], []
for minute in range(int(sys.argv[1])):
    samples = spoken.__wrapped__(60.0, minute, 16000)  # keeps nothing
    start = time.process_time()
    for packet in np.split(samples, 1500):  # of 40 ms
        session.accept(packet)
    times.append(time.process_time() - start)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
text = session.finish().text
print(json.dumps({"times": times, "peaks": peaks, "letters": len(text)}))
"""


@pytest.mark.slow
def test_an_hour_of_stream(environment: dict[str, str]) -> None:
    """Memory stays; the last ten minutes take about as long as the first ten.

    Not exactly: the text of an hour is longer to write down than that of a minute.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "60"], cwd=PROJECT, env=environment, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    measured = json.loads(done.stdout)
    print(measured)
    assert measured["letters"] > 10_000
    assert measured["peaks"][-1] - measured["peaks"][4] < 50  # MB in 55 minutes
    assert sum(measured["times"][-10:]) < 2.0 * sum(measured["times"][2:12])


@pytest.mark.slow
def test_an_hour_long_file(tmp_path: Path, environment: dict[str, str]) -> None:
    """Decoding 60 minutes needs no more memory than decoding 10."""
    import numpy as np
    import soundfile

    from asrkit.model_file import save_model
    from asrkit.text import CharTokenizer

    save_model(tmp_path / "m.safetensors", a_file(CharTokenizer(list("abcdefghij "))))
    peaks = {}
    for minutes in (10, 60):
        path = tmp_path / f"{minutes}.wav"
        draw = np.random.default_rng(0)
        with soundfile.SoundFile(path, "w", 16000, 1) as file:
            for _ in range(minutes):
                file.write(draw.standard_normal(60 * 16000).astype(np.float32) * 0.1)
        program = (
            "import resource, sys; from asrkit.decode import main; "
            f"main(['--model', r'{tmp_path}/m.safetensors', r'{path}']); "
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=PROJECT, env=environment, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        peaks[minutes] = float(done.stderr.splitlines()[-1])
    assert peaks[60] - peaks[10] < 50  # MB
