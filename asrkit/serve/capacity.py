"""The number of calls that this machine can serve, measured before a server accepts any."""

import os
import time

import numpy as np

from asrkit import audio
from asrkit.runtime import Batcher, Recognizer

STREAMS, SECONDS = 16, 4.0  # streams at once, so that they are batched; noise of each
# Share of a core's time that calls may use. At 0.4 the 99th percentile of live text's delay is some
# 200 ms. The rest is for the event loop, waiting for Python's lock, and bursts.
SHARE = 0.4


def capacity(recognizer: Recognizer, threads: int) -> int:
    """Estimate how many callers who never pause `threads` workers can serve in real time.

    This runs some seconds of noise through everything from samples to results, second pass
    included, and takes about one second. It counts this thread's processor time, because a
    moment in which other programs have the core would count for as long as the server runs. On
    another device it counts all of the time.
    """
    clock = time.thread_time if recognizer.engine.spec.device.type == "cpu" else time.perf_counter
    noise = np.random.default_rng(0).standard_normal(int(SECONDS * audio.SAMPLE_RATE)) * 0.05
    packets = np.array_split(noise.astype(np.float32), int(10 * SECONDS))
    with Batcher(recognizer) as batcher:
        run(batcher, packets[:10])  # warms up
        started = clock()
        run(batcher, packets)
        took = clock() - started
    cores = min(threads, os.cpu_count() or 1)
    return max(1, int(cores * SHARE * STREAMS * SECONDS / took))


def run(batcher: Batcher, packets: list[np.ndarray]) -> None:
    """Run `STREAMS` sessions at once, to their ends."""
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
