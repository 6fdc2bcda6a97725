"""The microphone, through sounddevice. Audio arrives on a callback thread in a bounded queue."""

import queue
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType

import numpy as np

from asrkit.audio.io import AudioError

QUEUE_SECONDS = 30.0


class Microphone:
    """Packets of float32 samples (n, 1) from an input device, at the device's own rate.

    Args:
        device: name or number, or None for the default.
        packet_ms: length of a packet.

    Attributes:
        sample_rate: Hz.
        lost: seconds of audio that found the queue full or that the device dropped.

    Raises:
        AudioError: if there is no such device, or sounddevice is not installed.
    """

    def __init__(self, device: str | None, packet_ms: int) -> None:
        try:
            import sounddevice
        except ImportError:
            raise AudioError(
                "the microphone needs sounddevice: pip install 'asrkit[mic]'"
            ) from None
        except OSError as error:
            raise AudioError(f"the microphone needs PortAudio (libportaudio2): {error}") from None
        name = int(device) if device is not None and device.isdecimal() else device
        try:
            self.sample_rate = int(sounddevice.query_devices(name, "input")["default_samplerate"])
            block = max(1, self.sample_rate * packet_ms // 1000)
            self._packets: queue.Queue[np.ndarray] = queue.Queue(
                int(QUEUE_SECONDS * 1000 / packet_ms) + 1
            )
            self.lost = 0.0
            self._stream = sounddevice.InputStream(
                samplerate=self.sample_rate, blocksize=block, device=name, channels=1,
                dtype="float32", callback=self._receive,
            )  # fmt: skip
        except (sounddevice.PortAudioError, ValueError) as error:
            raise AudioError(f"no microphone {device or '(default)'}: {error}") from None

    def _receive(self, samples: np.ndarray, frames: int, time: object, status: object) -> None:
        if getattr(status, "input_overflow", False):
            self.lost += frames / self.sample_rate  # at least: the device does not say how much
        try:
            self._packets.put_nowait(samples.copy())
        except queue.Full:
            self.lost += frames / self.sample_rate

    def __enter__(self) -> "Microphone":
        import sounddevice

        try:
            self._stream.start()
        except sounddevice.PortAudioError as error:
            raise AudioError(f"the microphone does not start: {error}") from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.stop()
        self._stream.close()

    def __iter__(self) -> Iterator[np.ndarray]:
        """Packets as they come; ends when the device goes away."""
        while self._stream.active:
            with suppress(queue.Empty):
                yield self._packets.get(timeout=0.5)

    def rest(self) -> Iterator[np.ndarray]:
        """What had arrived but was not taken yet."""
        self._stream.stop()
        while not self._packets.empty():
            yield self._packets.get_nowait()
