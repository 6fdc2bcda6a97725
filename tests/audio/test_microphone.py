"""Microphones: which there are, what arrives from them, and that nothing is lost silently."""

import builtins
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

from asrkit.audio import AudioError, microphone
from asrkit.audio.microphone import QUEUE_SECONDS, Microphone, device_table, find_device
from asrkit.audio.recorder import recording
from asrkit.cli.microphone_monitor import Watch
from asrkit.errors import UserError
from tests.conftest import speech


def recorded(microphone: Microphone) -> np.ndarray:
    """All that comes until the device ends, and no empty packets."""
    return np.concatenate([packet for packet in microphone if len(packet)] or [np.zeros((0, 1))])


def test_devices_by_number_or_a_part_of_their_name(sound: ModuleType) -> None:
    assert device_table().splitlines() == [
        "> 0 USB Mic, ALSA (1 in, 0 out)",
        "  1 Loudspeaker, ALSA (0 in, 0 out)",
        "  2 Built-in Mic, ALSA (2 in, 0 out)",
        "  3 USB Mic, JACK (1 in, 0 out)",
    ]
    assert [find_device(wanted)["index"] for wanted in (None, "2", "built")] == [0, 2, 2]
    sound.refused = "Device unavailable"
    with pytest.raises(AudioError, match="'Built-in Mic' cannot be used: Device unavailable"):
        Microphone("built", 100)
    for wanted, message in {
        "webcam": "No input device matching 'webcam'; the devices:",
        "1": "Not an input device: 'Loudspeaker'; the devices:",
        "mic": "Multiple input devices found for 'mic':; [0] …; the devices:",
    }.items():
        with pytest.raises(AudioError) as error:
            find_device(wanted)
        first, *lines = str(error.value).splitlines()
        assert (first, len(lines)) == (message, 4)
    sound.DEVICES.clear()
    with pytest.raises(AudioError, match=r"^PortAudio finds no microphone: plug one in"):
        find_device("0")


def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(UserError, match=r"sounddevice not installed: pip install .*\[mic\]'"):
        device_table()
    monkeypatch.setattr(microphone, "need", lambda package: None)
    real = builtins.__import__

    def without_portaudio(name: str, *arguments: Any) -> ModuleType:
        if name == "sounddevice":
            raise OSError("PortAudio library not found")
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_portaudio)
    with pytest.raises(AudioError, match=r"\(PortAudio library not found\): apt install"):
        device_table()


@pytest.mark.parametrize("packet_ms", [7, 1000])
def test_all_samples_arrive_in_order(packet_ms: int, sound: ModuleType) -> None:
    sound.samples, sound.pace, sound.overflows = speech(0.77), 0.0, {0}
    with Microphone(None, packet_ms) as microphone:
        assert np.array_equal(recorded(microphone)[:, 0], sound.samples)
        assert microphone.gone
    assert microphone.waiting == 0.0
    # What the device dropped before its first packet.
    assert microphone.lost == pytest.approx(min(packet_ms / 1000, 0.77))


def test_stopping_gives_what_had_arrived(sound: ModuleType) -> None:
    """Also where the device goes on, and also where packets are taken slower than they come."""
    sound.samples, sound.pace = speech(20.0), 0.01
    taken = []
    with Microphone(None, 10) as microphone:
        for packet in microphone:
            taken.append(packet)
            if len(taken) == 50:
                microphone.stop()
                behind = microphone.waiting
    size = sum(map(len, taken))
    assert size >= 50 * 160 + behind * 16000 - 1
    assert np.array_equal(np.concatenate(taken)[:, 0], sound.samples[:size])
    assert microphone.lost == 0.0
    assert not microphone.gone


def test_a_full_queue_is_counted(sound: ModuleType) -> None:
    """What is not taken in time is lost, the newest first, and every sample of it is counted."""
    sound.samples, sound.pace = speech(QUEUE_SECONDS + 1.3), 0.0
    finished = threading.Event()
    sound.after = lambda: finished.set() or True
    with Microphone(None, 100) as microphone:
        assert finished.wait(10)
        assert microphone.waiting == pytest.approx(QUEUE_SECONDS)
        assert microphone.lost == pytest.approx(1.3)
        taken = recorded(microphone)[:, 0]
    assert np.array_equal(taken, sound.samples[: len(taken)])
    assert len(taken) / 16000 + microphone.lost == pytest.approx(len(sound.samples) / 16000)


def test_while_nothing_comes_packets_are_empty(sound: ModuleType) -> None:
    """So that Ctrl-C and the screen wait for no device."""
    sound.after = lambda: False
    with Microphone(None, 100) as microphone:
        packets = iter(microphone)
        assert next(packets).shape == (0, 1)
        microphone.stop()
        assert list(packets) == []


def told(watch: Watch, *packets: np.ndarray) -> list[str]:
    return [text for packet in packets for text in watch(packet)]


@pytest.fixture
def monitor() -> Watch:
    microphone = SimpleNamespace(name="x", sample_rate=16000, waiting=0.0, lost=0.0)
    return Watch(microphone)  # type: ignore[arg-type]


SILENCE, SOUND, NOTHING = (
    np.full((1600, 1), 3e-5), np.full((1600, 1), 0.01), np.zeros((0, 1)),
)  # fmt: skip


@pytest.mark.parametrize("quiet", [[SILENCE] * 50, [NOTHING] * 20])
def test_silence_is_told_once(quiet: list[np.ndarray], monitor: Watch) -> None:
    assert told(monitor, *quiet[:-10], SOUND, *quiet[:-1]) == []  # a sound starts it anew
    (text,) = told(monitor, *quiet)
    assert text.startswith("no sound from 'x' for 5 s: is it muted?")
    assert told(monitor, *quiet, SOUND, *quiet, *quiet) == []


def test_level(monitor: Watch) -> None:
    """The text beside it must not jump, so it is always as wide."""
    levels = []
    for peak in (0.0, 1e-5, 0.5, 1.2):
        assert told(monitor, np.full((160, 1), peak)) == []
        levels.append(monitor.level())
    assert {*map(len, levels)} == {10}
    assert [each.strip() for each in levels] == ["-∞ dBFS", "-100 dBFS", "-6 dBFS", "CLIP!"]


@pytest.mark.parametrize(("suffix", "error"), [(".wav", 0.0), (".flac", 2**-23)])
def test_a_recording_holds_what_was_written(suffix: str, error: float, tmp_path: Path) -> None:
    """Of any pieces; and complete where what comes after it fails."""
    samples, path = speech(2.0), str(tmp_path / f"x{suffix}")

    def record() -> None:
        with recording(path, 22050) as write:
            for part in np.split(samples, [0, 1, 700, 20000]):
                write(part)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record()
    read, rate = soundfile.read(path, dtype="float32")
    assert rate == 22050
    assert len(read) == len(samples)
    assert np.abs(read - samples).max() <= error


def test_a_recording_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    path.write_text("mine")
    for name, message in (
        ("x.wav", "exists already and is not replaced"),
        ("x.mp3", "a recording needs a .wav or .flac file, got"),
        ("none/x.wav", "x.wav cannot be written: make the folder .*none first"),
        ("y.flac", "y.flac cannot be written: .* does not support this sample rate"),
    ):
        with pytest.raises(AudioError, match=message), recording(str(tmp_path / name), 768000):
            pass
    assert path.read_text() == "mine"
