"""Microphones, through sounddevice: the input devices, and reading from a device.

A callback thread fills a bounded queue.
"""

import math
import queue
import time
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import numpy as np

from asrkit.audio.samples import AudioError
from asrkit.extras import pip_install

QUEUE_SECONDS = 30.0
IDLE_SECONDS = 0.25  # without audio, after which an empty packet is returned
NONE = (
    "PortAudio finds no microphone on this computer: check that one is plugged in, "
    "and that this user and this program may use it"
)


class Device(NamedTuple):
    number: int
    name: str
    system: str  # ALSA, Core Audio, Windows WASAPI, …; several systems may list the same device
    channels: int
    sample_rate: int  # Hz, the device's default
    is_default: bool


def sound_library() -> ModuleType:
    """Return the module sounddevice."""
    try:
        import sounddevice
    except ImportError:
        command = pip_install("sounddevice")
        raise AudioError(f"the microphone needs sounddevice: {command}") from None
    except OSError as error:
        raise AudioError(f"the microphone needs PortAudio (libportaudio2): {error}") from None
    return sounddevice


def input_devices() -> list[Device]:
    sounddevice = sound_library()
    systems = [system["name"] for system in sounddevice.query_hostapis()]
    default = sounddevice.default.device[0]
    return [
        Device(
            number, device["name"], systems[device["hostapi"]], device["max_input_channels"],
            int(device["default_samplerate"]), number == default,
        )
        for number, device in enumerate(sounddevice.query_devices())
        if device["max_input_channels"] > 0
    ]  # fmt: skip


def find_device(wanted: str | None) -> Device:
    """Return the input device with this number or (part of a) name; the default one for None."""
    devices = input_devices()
    if not devices:
        raise AudioError(NONE)
    if wanted is None:
        found = [device for device in devices if device.is_default]
        problem = "there is no default microphone: choose one by its number or name"
    elif wanted.isdecimal():
        found = [device for device in devices if device.number == int(wanted)]
        problem = f"no microphone has the number {wanted}"
    else:
        found = by_name(devices, wanted)
        problem = f"no microphone's name contains {wanted!r}"
    if len(found) > 1:
        problem, devices = f"{wanted!r} matches {len(found)} microphones: choose one", found
    if len(found) != 1:
        raise AudioError(f"{problem}\n{device_table(devices)}")
    return found[0]


def by_name(devices: list[Device], wanted: str) -> list[Device]:
    """Return devices of exactly this name or "name, system"; if none, those that contain it."""
    wanted = wanted.casefold()
    names = {device: f"{device.name}, {device.system}".casefold() for device in devices}
    exact = [each for each in devices if wanted in (each.name.casefold(), names[each])]
    return exact or [each for each in devices if wanted in names[each]]


def device_table(devices: list[Device]) -> str:
    """Return a table of the devices, one per line; * marks the default device."""
    if not devices:
        return NONE
    size = max(len("name"), *(len(device.name) for device in devices))
    lines = [f"  number  {'name':{size}}  channels  rate in Hz  system"]
    lines += [
        f"{'*' if d.is_default else ' '} {d.number:6}  {d.name:{size}}  {d.channels:8}"
        f"  {d.sample_rate:10}  {d.system}"
        for d in devices
    ]
    return "\n".join(lines)


class Microphone:
    """An iterable of packets of float32 samples (n, 1) from an input device, at its own rate.

    Attributes:
        lost: seconds of audio that did not fit into the queue, because packets were read too late.
        dropped: smallest possible number of seconds that the device or the system dropped.
        gone: whether the device was disconnected.
    """

    def __init__(self, device: str | None, packet_ms: int, channels: int = 1) -> None:
        sounddevice = sound_library()
        found = find_device(device)
        self.name, self.sample_rate, self.channels = found.name, found.sample_rate, channels
        if found.channels < channels:
            text = f"{self.name!r} has too few channels: {found.channels} of {channels}"
            raise AudioError(text)
        self.lost = self.dropped = 0.0
        self._packets: queue.Queue[np.ndarray] = queue.Queue(
            math.ceil(QUEUE_SECONDS * 1000 / packet_ms)
        )
        self._block = max(1, self.sample_rate * packet_ms // 1000)
        self._clock = LossClock()
        self.stopped = self.gone = False
        try:
            self._stream = sounddevice.InputStream(
                samplerate=self.sample_rate, blocksize=self._block, device=found.number,
                channels=channels, dtype="float32", callback=self._receive,
            )  # fmt: skip
        except sounddevice.PortAudioError as error:
            raise AudioError(f"the microphone {self.name!r} cannot be used: {error}") from None

    @property
    def waiting(self) -> float:
        """Seconds of audio in the queue."""
        return self._packets.qsize() * self._block / self.sample_rate

    def _receive(self, samples: np.ndarray, frames: int, when: object, status: object) -> None:
        seconds = frames / self.sample_rate
        known = seconds if getattr(status, "input_overflow", False) else 0.0
        self.dropped += known + self._clock(time.monotonic(), seconds, known)
        try:
            self._packets.put_nowait(samples.copy())
        except queue.Full:
            self.lost += seconds

    def __enter__(self) -> "Microphone":
        try:
            self._stream.start()
        except sound_library().PortAudioError as error:
            self._stream.close()
            raise AudioError(f"the microphone {self.name!r} does not start: {error}") from None
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.abort()
        self._stream.close()

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield packets as they arrive, and empty ones (0, channels) in silence of the device.

        The iterator ends after `stop`, or when the device is disconnected, once the queue is empty.
        """
        while not self.stopped and self._stream.active:
            try:
                yield self._packets.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                yield np.zeros((0, self.channels), dtype=np.float32)
        self.gone = not self.stopped
        self._stream.stop()  # the queue gets no more packets
        while not self._packets.empty():
            yield self._packets.get_nowait()

    def stop(self) -> None:
        """Stop recording. May be called from another thread or a signal handler."""
        self.stopped = True


class LossClock:
    """Detects audio that a device dropped without an error, by comparing its length with the clock.

    A late packet is not a loss, because the next ones catch up: only the smallest delay within a
    few seconds counts. A delay that grows slowly is not a loss either: the device's clock may run
    slower than the computer's.
    """

    WINDOW, JUMP = 3.0, 0.5  # seconds

    def __init__(self) -> None:
        self.start: float | None = None  # start of the first packet
        self.end = 0.0  # end of the window
        self.accounted = 0.0  # seconds of audio that arrived or were counted as lost
        self.usual = math.inf  # smallest delay in the last window, seconds
        self.least = math.inf  # smallest delay in this window

    def __call__(self, now: float, seconds: float, known: float) -> float:
        """Return the seconds of audio found lost when a packet of `seconds` arrives at time `now`.

        Args:
            known: seconds before the packet that the device reported as lost.
        """
        if self.start is None:
            self.start = now - seconds
        if self.least == math.inf:
            self.end = now + self.WINDOW
        self.accounted += seconds + known
        self.least = min(self.least, now - self.start - self.accounted)
        if now < self.end:
            return 0.0
        jump, self.usual, self.least = self.least - self.usual, self.least, math.inf
        return jump if jump > self.JUMP else 0.0
