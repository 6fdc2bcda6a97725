"""asrkit stream --mic through sounddevice, PortAudio and ALSA: PulseAudio plays an utterance.

A null sink is the loudspeaker and its monitor the microphone, so no hardware is needed. Samples
go through bit for bit, which makes the comparison exact. .ci/run installs what is needed.
"""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from recipes.digits.prepare import ESPEAK_RATE, record, synthesise
from tests.conftest import PROJECT, skip
from tests.running import ONE_PASS, run, wait_until

MODEL, TEXT = "small-en-alnum", "one two three four five six seven"
RATE = 44100  # that of the ALSA plugin; any other would be resampled on the way
TIMEOUT = 120  # seconds; on a computer with nothing else to do, ten


def missing() -> list[str]:
    """What this computer has not got."""
    commands = [name for name in ("pulseaudio", "pactl") if not shutil.which(name)]
    modules = [name for name in ("sounddevice", "espeakng_loader") if not find_spec(name)]
    libraries = "libportaudio.so.2", "libasound_module_pcm_pulse.so"
    return commands + modules + [n for n in libraries if not any(Path("/usr/lib").rglob(n))]


@pytest.fixture
def pulse(tmp_path: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of a PulseAudio of its own, whose default microphone hears sink `spk`."""
    if lacking := missing():
        skip(f"no virtual microphone without {', '.join(lacking)}")
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    environment |= {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder),
                    "PULSE_SINK": "spk", "PULSE_SOURCE": "spk.monitor"}  # fmt: skip
    for name in ("PULSE_SERVER", "PULSE_RUNTIME_PATH", "XDG_CONFIG_HOME", "DISPLAY"):
        environment.pop(name, None)
    sink = f"sink_name=spk norewinds=1 rate={RATE} channels=1 format=float32le"
    server = subprocess.Popen(
        ["pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "--log-target=stderr",
         "-L", "module-native-protocol-unix", "-L", f"module-null-sink {sink}"],
        env=environment, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        sources = ("list", "short", "sources")
        wait_until(lambda: "spk.monitor" in pactl(environment, *sources), TIMEOUT)
        yield environment
    finally:
        server.terminate()
        server.wait(10)


def pactl(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(["pactl", *arguments], env=environment, capture_output=True, text=True)
    return done.stdout


def utterance() -> np.ndarray:
    """An utterance of the digits recipe, with silence around it, at the sink's rate."""
    rng = np.random.default_rng(1)
    speech = record(synthesise(TEXT, "en+f2", rng) / 32768, ESPEAK_RATE, rng)
    padded = np.pad(soxr.resample(speech, 16000, RATE), RATE)
    return padded.astype(np.float32)


def decoded(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert run("decode", "--model", MODEL, path) == 0
    return capsys.readouterr().out


def trimmed(samples: np.ndarray) -> np.ndarray:
    """Without the digital silence around it."""
    first, *_, last = np.flatnonzero(samples)
    return samples[first : last + 1]


def test_what_is_played_is_recognised(
    pulse: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text is that of the file, and exactly that of what was saved: streaming is offline."""
    played, recorded, notes = (tmp_path / name for name in ("played.wav", "saved.wav", "notes"))
    soundfile.write(played, utterance(), RATE, subtype="FLOAT")
    pactl(pulse, "upload-sample", str(played), "played")
    command = [sys.executable, "-m", "asrkit.stream", "--model", MODEL, "--mic", *ONE_PASS]
    with notes.open("w") as errors:
        process = subprocess.Popen(
            [*command, "--save-audio", str(recorded)], env=pulse, cwd=PROJECT, text=True,
            stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    try:
        wait_until(lambda: "Ctrl-C ends" in notes.read_text() or process.poll(), TIMEOUT)
        assert process.poll() is None, notes.read_text()
        wait_until(lambda: recorded.exists() and recorded.stat().st_size > 2 * RATE, TIMEOUT)
        pactl(pulse, "play-sample", "played", "spk")
        playing = ("list", "short", "sink-inputs")
        wait_until(lambda: pactl(pulse, *playing), TIMEOUT)
        wait_until(lambda: not pactl(pulse, *playing), TIMEOUT)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    assert process.returncode == 0, notes.read_text()
    assert "lost" not in notes.read_text()
    samples, rate = soundfile.read(recorded, dtype="float32")
    assert rate == RATE
    assert np.array_equal(trimmed(samples), trimmed(utterance()))
    assert text == decoded(recorded, capsys) == decoded(played, capsys) == f"{TEXT}\n"
