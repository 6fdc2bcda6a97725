"""Log lines on the progress of an epoch."""

import logging
import time

EVERY = 30.0  # seconds between lines

logger = logging.getLogger(__name__)


def duration(seconds: float) -> str:
    """Return a duration in words: "40 s", "5 min 07 s", "3 h 05 min"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


class EpochLog:
    """A log line every 30 seconds of an epoch; `total` and `done` are seconds of audio."""

    def __init__(self, epoch: int, num_epochs: int, total: float, done: float) -> None:
        self.epoch, self.num_epochs, self.total, self.before = epoch, num_epochs, total, done
        self.start = self.written = time.monotonic()

    def update(self, done: float, loss: float) -> None:
        now = time.monotonic()
        if now - self.written < EVERY:
            return
        self.written = now
        rate = max(1e-9, (done - self.before) / (now - self.start))
        left = max(0.0, (self.num_epochs - self.epoch) * self.total - done)
        logger.info(
            "epoch %d/%d  %2.0f %%  loss %.3f  %.0f s of audio a second  about %s left",
            self.epoch + 1, self.num_epochs, 100 * min(1.0, done / max(1e-9, self.total)),
            loss, rate, duration(left / rate),
        )  # fmt: skip
