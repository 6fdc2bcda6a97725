"""Monitoring a microphone: its level, and notes of silence, lost audio and slow decoding."""

import math
from collections.abc import Iterator

import numpy as np

from asrkit.audio.microphone import IDLE_SECONDS, QUEUE_SECONDS, Microphone


class Level:
    """A peak meter: rises at once, falls by 30 dB per second."""

    FALL = 30.0  # dB a second
    FLOOR = -90.0  # dBFS, about one step of 16 bits; lower peaks count as silence
    FULL = 0.999

    def __init__(self) -> None:
        self.peak = -math.inf  # dBFS; digital silence
        self._since_clipping = math.inf  # seconds

    @property
    def clipped(self) -> bool:
        """Whether a sample reached full scale within the last second."""
        return self._since_clipping < 1.0

    def __call__(self, samples: np.ndarray, seconds: float) -> None:
        """Update the meter with samples of any shape, possibly empty, of this length in seconds."""
        loudest = float(np.abs(samples).max(initial=0.0))
        self._since_clipping = 0.0 if loudest >= self.FULL else self._since_clipping + seconds
        peak = 20 * math.log10(loudest) if loudest > 0 else -math.inf
        self.peak = max(peak, self.peak - self.FALL * seconds)
        if self.peak < self.FLOOR:
            self.peak = -math.inf


class Watch:
    """Notes for the user of a microphone; each problem is reported once, not at every packet."""

    SILENCE = 5.0  # seconds
    QUIET = 1e-4  # -80 dBFS, below the noise that a working microphone records in any room
    BEHIND, CAUGHT_UP = 2.0, 0.5  # seconds in the queue

    def __init__(self, microphone: Microphone) -> None:
        self.microphone = microphone
        self.level = Level()
        self.silent: float | None = 0.0  # seconds without sound so far; None once reported
        self.next_behind = self.BEHIND  # seconds in the queue that are reported next
        self.next_lost = self.next_dropped = 0.0  # seconds above which losses are reported next

    def __call__(self, packet: np.ndarray) -> Iterator[str]:
        """Yield notes after a packet (n, 1), which is empty if no audio arrived."""
        seconds = len(packet) / self.microphone.sample_rate or IDLE_SECONDS
        self.level(packet, seconds)
        yield from self._silence(packet, seconds)
        yield from self._backlog()
        yield from self._losses()

    def _silence(self, packet: np.ndarray, seconds: float) -> Iterator[str]:
        if self.silent is None:
            return
        quiet = np.abs(packet).max(initial=0.0) < self.QUIET
        self.silent = self.silent + seconds if quiet else 0.0
        if self.silent >= self.SILENCE:
            self.silent = None
            yield (
                f"no sound from {self.microphone.name!r} for {self.SILENCE:.0f} s: is it muted? "
                "(--list-devices shows others)"
            )

    def _backlog(self) -> Iterator[str]:
        waiting = self.microphone.waiting
        if self.microphone.stopped:
            if waiting > self.CAUGHT_UP and self.next_behind < math.inf:
                yield f"decoding the last {waiting:.1f} s; Ctrl-C again ends at once"
            self.next_behind = math.inf
        elif waiting >= self.next_behind:
            self.next_behind = 2 * waiting
            yield (
                f"{waiting:.1f} s behind: decoding is slower than speech; "
                f"beyond {QUEUE_SECONDS:.0f} s audio will be lost"
            )
        elif waiting <= self.CAUGHT_UP and self.next_behind > self.BEHIND:
            self.next_behind = self.BEHIND
            yield "caught up"

    def _losses(self) -> Iterator[str]:
        lost, dropped = self.microphone.lost, self.microphone.dropped
        if lost > self.next_lost:
            self.next_lost = max(2 * lost, lost + 1)
            yield f"audio is being lost, {lost:.2f} s so far: the queue is full"
        if dropped > self.next_dropped:
            self.next_dropped = max(2 * dropped, dropped + 1)
            yield f"the device or the system dropped audio, {dropped:.2f} s so far"
