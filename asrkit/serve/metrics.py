"""Metrics of a server for Prometheus, summed over its processes."""

import os
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"  # variable that prometheus_client reads


class Figures:
    """Metrics for Prometheus."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.streams = Gauge(
            "asrkit_streams", "Calls now.", ["model"], registry=registry,
            multiprocess_mode="livesum",
        )  # fmt: skip
        self.audio = Counter(
            "asrkit_audio_seconds", "Seconds of audio that the network processed.", ["model"],
            registry=registry,
        )  # fmt: skip
        self.rows = Histogram(
            "asrkit_step_rows", "Streams in a step of the network.", ["model"], registry=registry,
            buckets=(1, 2, 4, 8, 16, 32),
        )  # fmt: skip
        self.seconds = Histogram(
            "asrkit_step_seconds", "Time of a step of the network.", ["model"], registry=registry,
            buckets=(0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64),
        )  # fmt: skip
        self.refused = Counter(
            "asrkit_refused", "Calls that were rejected.", ["reason"], registry=registry
        )
        self.dropped = Counter(
            "asrkit_dropped", "Calls that the server ended.", ["reason"], registry=registry
        )

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus's text format, summed over the server's processes."""
        registry = self.registry
        if METRICS_DIR in os.environ:
            for path in Path(os.environ[METRICS_DIR]).glob("gauge_live*.db"):
                process = path.stem.rpartition("_")[2]
                if not is_alive(int(process)):  # else its calls would still be counted
                    mark_process_dead(process)
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return generate_latest(registry)

    def add(self, model: str) -> None:
        """Add the metrics of a model, which are 0 until its first call."""
        for each in (self.streams, self.audio, self.rows, self.seconds):
            each.labels(model)

    def step(self, model: str, rows: int, seconds: float) -> None:
        """Note a step of a model's network."""
        self.rows.labels(model).observe(rows)
        self.seconds.labels(model).observe(seconds)


def is_alive(process: int) -> bool:
    """Whether a process runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
