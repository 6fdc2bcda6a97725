"""How many calls this machine holds, measured before a server takes any."""

import os
import time

import numpy as np

from asrkit import audio
from asrkit.runtime import Batcher, Recognizer

STREAMS, SECONDS = 16, 4.0  # of noise, as one after another would not be batched
# Of a core's time: at 0.4 of what it does without sockets p99 of live text is some 200 ms, and the
# rest goes to the event loop, to waiting for Python's lock, and to bursts.
SHARE = 0.4


def capacity(recognizer: Recognizer, threads: int) -> int:
    """Estimate how many callers who never pause `threads` workers can serve in real time.

    The time of everything from samples to results, the second pass included, is measured for some
    seconds of noise: it takes about one.
    """
    noise = np.random.default_rng(0).standard_normal(int(SECONDS * audio.SAMPLE_RATE)) * 0.05
    packets = np.array_split(noise.astype(np.float32), int(10 * SECONDS))
    with Batcher(recognizer) as batcher:
        run(batcher, packets[:10])  # warms up
        started = time.perf_counter()
        run(batcher, packets)
        took = time.perf_counter() - started
    cores = min(threads, os.cpu_count() or 1)
    return max(1, int(cores * SHARE * STREAMS * SECONDS / took))


def run(batcher: Batcher, packets: list[np.ndarray]) -> None:
    """Some sessions at once, to their ends."""
    sessions = [batcher.start() for _ in range(STREAMS)]
    for packet in packets:
        for session in sessions:
            session.accept(packet)
        while batcher.step():
            pass
    for session in sessions:
        session.finish()
    while batcher.step():
        pass
