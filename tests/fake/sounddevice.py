"""A stand-in for sounddevice: a thread plays samples into the callback of whoever records."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np


class PortAudioError(Exception):
    pass


RATE = 16000
DEVICES: list[dict[str, Any]] = [
    {"name": name, "hostapi": system, "max_input_channels": channels, "default_samplerate": rate}
    for name, system, channels, rate in (
        ("USB Mic", 0, 1, float(RATE)),
        ("Loudspeaker", 0, 0, 48000.0),
        ("Built-in Mic", 0, 2, 48000.0),
        ("USB Mic", 1, 1, 44100.0),
    )
]
default = SimpleNamespace(device=[0, 1])
samples = np.zeros(0, dtype=np.float32)  # what the device records
pace = 1.0  # seconds that a second of it takes; 0 for at once
overflows: set[int] = set()  # blocks before which the device says that it lost something
refused = ""  # why no stream can be opened


def after() -> bool:
    """Called after the last sample; returns whether the device is then disconnected."""
    return True


class DeviceList(list[dict[str, Any]]):
    def __str__(self) -> str:
        lines = (
            f"{'> '[i != default.device[0]]} {i} {each['name']}, {query_hostapis(each['hostapi'])}"
            f" ({each['max_input_channels']} in, 0 out)" for i, each in enumerate(self)
        )  # fmt: skip
        return "\n".join(lines)


def query_devices(device: int | str | None = None, kind: str | None = None) -> Any:
    """As sounddevice's: the list, or one device by its number or a part of its name."""
    if device is None and kind is None:
        return DeviceList(DEVICES)
    device = default.device[0] if device is None else device
    if isinstance(device, str):
        inputs = [i for i, each in enumerate(DEVICES) if each["max_input_channels"]]
        found = [i for i in inputs if device.lower() in DEVICES[i]["name"].lower()]
        if not found:
            raise ValueError(f"No input device matching {device!r}")
        if len(found) > 1:
            raise ValueError(f"Multiple input devices found for {device!r}:\n[0] …")
        device = found[0]
    if not 0 <= device < len(DEVICES):
        raise PortAudioError(f"Error querying device {device}")
    if not DEVICES[device]["max_input_channels"]:
        raise ValueError(f"Not an input device: {DEVICES[device]['name']!r}")
    return {**DEVICES[device], "index": device}


def query_hostapis(number: int) -> str:
    return ("ALSA", "JACK")[number]


class InputStream:
    def __init__(self, samplerate: int, blocksize: int, device: int, **options: Any) -> None:
        assert options.keys() == {"channels", "dtype", "callback"}
        assert (options["channels"], options["dtype"]) == (1, "float32")
        if refused:
            raise PortAudioError(refused)
        self.rate, self.blocksize, self.callback = samplerate, blocksize, options["callback"]
        self.active = False
        self.thread = threading.Thread(target=self.play, daemon=True)

    def start(self) -> None:
        self.active = True
        self.thread.start()

    def play(self) -> None:
        start = time.monotonic()
        # One buffer for all, as PortAudio's.
        buffer = np.zeros((self.blocksize, 1), dtype=np.float32)
        for number, first in enumerate(range(0, len(samples), self.blocksize)):
            block = samples[first : first + self.blocksize].reshape(-1, 1)
            end = start + pace * (first + len(block)) / self.rate
            time.sleep(max(0.0, end - time.monotonic()))
            if not self.active:
                return
            buffer[: len(block)] = block
            status = SimpleNamespace(input_overflow=number in overflows)
            self.callback(buffer[: len(block)], len(block), None, status)
            buffer[:] = np.nan  # it is the device's again
        if after():
            self.active = False

    def stop(self) -> None:
        self.active = False
        if self.thread is not threading.current_thread() and self.thread.is_alive():
            self.thread.join()

    abort = close = stop
