"""Microphones, through sounddevice: choosing a device, and reading from it.

A callback thread fills a bounded queue.
"""

import math
import queue
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from asrkit.audio.samples import AudioError
from asrkit.errors import reason
from asrkit.extras import need

QUEUE_SECONDS = 30.0
IDLE_SECONDS = 0.25  # without audio, after which an empty packet is returned
NONE = "PortAudio finds no microphone: plug one in, and allow this program to use it"


def sound_library() -> ModuleType:
    """Return the module sounddevice."""
    need("sounddevice")
    try:
        import sounddevice
    except OSError as error:
        raise AudioError(f"no microphone ({error}): apt install libportaudio2") from None
    return sounddevice


def find_device(wanted: str | None) -> dict[str, Any]:
    """Return the input device with this number or (part of a) name; the default one for None."""
    sounddevice = sound_library()
    number = int(wanted) if wanted is not None and wanted.isdecimal() else wanted
    try:
        device: dict[str, Any] = sounddevice.query_devices(number, "input")
    except (ValueError, sounddevice.PortAudioError) as error:
        table = device_table()
        problem = "" if table == NONE else f"{reason(error, 9)}; the devices:\n"
        raise AudioError(problem + table) from None
    return device


def device_table() -> str:
    """Return a table of the devices, one per line; > and * mark the default microphone."""
    devices = sound_library().query_devices()
    return str(devices) if any(each["max_input_channels"] for each in devices) else NONE


class Microphone:
    """Packets of float32 samples (n, 1) from an input device, at its own rate.

    Attributes:
        lost: seconds of packets that did not fit into the queue, because they were read too late,
            or before which the device or the system dropped audio.
        gone: whether the device was disconnected.
    """

    def __init__(self, device: str | None, packet_ms: int) -> None:
        sounddevice = sound_library()
        found = find_device(device)
        self.name, self.sample_rate = str(found["name"]), int(found["default_samplerate"])
        self.lost = 0.0
        self._packets: queue.Queue[np.ndarray] = queue.Queue(
            math.ceil(QUEUE_SECONDS * 1000 / packet_ms)
        )
        self._block = max(1, self.sample_rate * packet_ms // 1000)
        self.stopped = self.gone = False
        try:
            self._stream = sounddevice.InputStream(
                samplerate=self.sample_rate, blocksize=self._block, device=found["index"],
                channels=1, dtype="float32", callback=self._receive,
            )  # fmt: skip
            self._stream.start()
        except sounddevice.PortAudioError as error:
            raise AudioError(f"the microphone {self.name!r} cannot be used: {error}") from None

    @property
    def waiting(self) -> float:
        """Seconds of audio in the queue."""
        return self._packets.qsize() * self._block / self.sample_rate

    def _receive(self, samples: np.ndarray, frames: int, when: object, status: object) -> None:
        is_lost = bool(getattr(status, "input_overflow", False))
        try:
            self._packets.put_nowait(samples.copy())
        except queue.Full:
            is_lost = True
        self.lost += is_lost * frames / self.sample_rate

    def __enter__(self) -> "Microphone":
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.abort()
        self._stream.close()

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield packets as they arrive, and empty ones (0, 1) in silence of the device.

        The iterator ends after `stop`, or when the device is disconnected, once the queue is empty.
        """
        while not self.stopped and self._stream.active:
            try:
                yield self._packets.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                yield np.zeros((0, 1), dtype=np.float32)
        self.gone = not self.stopped
        self._stream.stop()  # the queue gets no more packets
        while not self._packets.empty():
            yield self._packets.get_nowait()

    def stop(self) -> None:
        """Stop recording. May be called from another thread or a signal handler."""
        self.stopped = True
