"""Monitoring a microphone: its level, and notes of silence, lost audio and slow decoding."""

import math
from collections.abc import Iterator

import numpy as np

from asrkit.audio.microphone import IDLE_SECONDS, QUEUE_SECONDS, Microphone

SILENCE = 5.0  # seconds
QUIET = 1e-4  # -80 dBFS, below the noise that a working microphone records in any room
BEHIND = 2.0  # seconds in the queue


class Watch:
    """Notes for the user of a microphone, each once."""

    def __init__(self, microphone: Microphone) -> None:
        self.microphone = microphone
        self.peak = 0.0  # loudest sample of the last packet
        self.silent = 0.0  # seconds without sound so far
        self.reported = set[str]()

    def __call__(self, packet: np.ndarray) -> Iterator[str]:
        """Yield notes after a packet (n, channels), which is empty if no audio arrived."""
        microphone = self.microphone
        self.peak = float(np.abs(packet).max(initial=0.0))
        seconds = len(packet) / microphone.sample_rate or IDLE_SECONDS
        self.silent = self.silent + seconds if self.peak < QUIET else 0.0
        problems = {
            f"no sound from {microphone.name!r} for {SILENCE:.0f} s: is it muted? (--list-devices "
            "shows others)": self.silent >= SILENCE,
            f"{BEHIND:.0f} s behind: decoding is slower than speech; beyond {QUEUE_SECONDS:.0f} s "
            "audio will be lost": microphone.waiting >= BEHIND,
            "audio is being lost: decoding, the device or the system is too slow":
                microphone.lost > 0,
        }  # fmt: skip
        for problem in (each for each, is_there in problems.items() if is_there):
            if problem not in self.reported:
                self.reported.add(problem)
                yield problem

    def level(self) -> str:
        """Return the level of the last packet in a fixed width."""
        decibels = f"{20 * math.log10(self.peak):4.0f}" if self.peak > 0 else "  -∞"
        return "   CLIP!  " if self.peak >= 0.999 else f"{decibels} dBFS "
