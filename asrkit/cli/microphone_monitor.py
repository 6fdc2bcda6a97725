"""Monitoring a microphone: its level, and notes of silence, lost audio and slow decoding."""

import math
from collections.abc import Iterator

import numpy as np

from asrkit.audio.microphone import IDLE_SECONDS, QUEUE_SECONDS, Microphone


class Watch:
    """Notes for the user of a microphone, each once while its problem lasts."""

    SILENCE = 5.0  # seconds
    QUIET = 1e-4  # -80 dBFS, below the noise that a working microphone records in any room
    BEHIND, CAUGHT_UP = 2.0, 0.5  # seconds in the queue

    def __init__(self, microphone: Microphone) -> None:
        self.microphone = microphone
        self.peak = 0.0  # loudest sample of the last packet
        self.silent: float | None = 0.0  # seconds without sound so far; None once reported
        self.reported = set[str]()  # problems

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
            self.reported.discard("behind")
        elif microphone.stopped and self._is_news("stopped", waiting > 0):
            yield f"decoding the last {waiting:.1f} s; Ctrl-C again ends at once"
        elif not microphone.stopped and self._is_news("behind", waiting >= self.BEHIND):
            yield (
                f"{waiting:.1f} s behind: decoding is slower than speech; "
                f"beyond {QUEUE_SECONDS:.0f} s audio will be lost"
            )
        if self._is_news("lost", microphone.lost > 0):
            yield "audio is being lost: the queue is full"
        if self._is_news("dropped", microphone.dropped > 0):
            yield "the device or the system dropped audio"

    def _is_news(self, problem: str, is_there: bool) -> bool:
        """Return whether a problem is there and was not reported."""
        is_news = is_there and problem not in self.reported
        if is_news:
            self.reported.add(problem)
        return is_news

    def level(self) -> str:
        """Return the level of the last packet in a fixed width."""
        decibels = f"{20 * math.log10(self.peak):4.0f}" if self.peak > 0 else "  -∞"
        return "   CLIP!  " if self.peak >= 0.999 else f"{decibels} dBFS "
