"""Monitoring a microphone: its level, and notes of silence, lost audio and slow decoding."""

import math
from collections.abc import Iterator

import numpy as np

from asrkit.audio.microphone import IDLE_SECONDS, QUEUE_SECONDS, Microphone


class Watch:
    """Notes for the user of a microphone; a problem is reported again only when it has doubled."""

    SILENCE = 5.0  # seconds
    QUIET = 1e-4  # -80 dBFS, below the noise that a working microphone records in any room
    BEHIND, CAUGHT_UP = 2.0, 0.5  # seconds in the queue

    def __init__(self, microphone: Microphone) -> None:
        self.microphone = microphone
        self.peak = 0.0  # loudest sample of the last packet
        self.silent: float | None = 0.0  # seconds without sound so far; None once reported
        self.reported: dict[str, float] = {}  # seconds of each problem

    def __call__(self, packet: np.ndarray) -> Iterator[str]:
        """Yield notes after a packet (n, channels), which is empty if no audio arrived."""
        microphone = self.microphone
        self.peak = float(np.abs(packet).max(initial=0.0))
        if self.silent is not None:
            seconds = len(packet) / microphone.sample_rate or IDLE_SECONDS
            self.silent = self.silent + seconds if self.peak < self.QUIET else 0.0
            if self.silent >= self.SILENCE:
                self.silent = None
                yield (
                    f"no sound from {microphone.name!r} for {self.SILENCE:.0f} s: is it muted? "
                    "(--list-devices shows others)"
                )
        waiting = microphone.waiting
        if waiting <= self.CAUGHT_UP:
            self.reported.pop("behind", None)
        elif microphone.stopped and self._is_news("stopped", waiting):
            yield f"decoding the last {waiting:.1f} s; Ctrl-C again ends at once"
        elif not microphone.stopped and self._is_news("behind", waiting, self.BEHIND):
            yield (
                f"{waiting:.1f} s behind: decoding is slower than speech; "
                f"beyond {QUEUE_SECONDS:.0f} s audio will be lost"
            )
        if self._is_news("lost", microphone.lost):
            yield f"audio is being lost, {microphone.lost:.2f} s so far: the queue is full"
        if self._is_news("dropped", microphone.dropped):
            yield f"the device or the system dropped audio, {microphone.dropped:.2f} s so far"

    def _is_news(self, problem: str, seconds: float, least: float = 0.0) -> bool:
        """Return whether a problem is new, or twice as large as when it was reported."""
        if (last := self.reported.get(problem)) is not None:
            least = last + max(last, 1.0)
        if not 0 < seconds >= least:
            return False
        self.reported[problem] = seconds
        return True

    def level(self) -> str:
        """Return the level of the last packet in a fixed width."""
        decibels = f"{20 * math.log10(self.peak):4.0f}" if self.peak > 0 else "  -∞"
        return "   CLIP!  " if self.peak >= 0.999 else f"{decibels} dBFS "
