"""Metrics of a server for Prometheus, summed over its processes."""

import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"  # variable that prometheus_client reads


class Figures:
    """Metrics for Prometheus."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        counter = partial(Counter, registry=registry)
        self.streams = Gauge(
            "asrkit_streams", "Calls now.", ["model"], registry=registry,
            multiprocess_mode="livesum",
        )  # fmt: skip
        heard = "Seconds of audio that the network processed."
        self.audio = counter("asrkit_audio_seconds", heard, ["model"])
        self.refused = counter("asrkit_refused", "Calls that were rejected.", ["reason"])
        self.dropped = counter("asrkit_dropped", "Calls that the server ended.", ["reason"])

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus's text format, summed over the server's processes."""
        registry = self.registry
        if METRICS_DIR in os.environ:
            for path in Path(os.environ[METRICS_DIR]).glob("gauge_live*.db"):
                process = path.stem.rpartition("_")[2]
                if not is_alive(int(process)):  # else its calls would still be counted
                    with suppress(FileNotFoundError):  # another process removes the same file
                        mark_process_dead(process)
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return generate_latest(registry)


def is_alive(process: int) -> bool:
    """Whether a process of the server runs."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, PermissionError):  # or another user's process has its number
        return False
    return True
