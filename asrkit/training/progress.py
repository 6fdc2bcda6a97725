"""The progress of an epoch: a bar on a terminal, otherwise a log line every 30 seconds."""

import logging
import time

from tqdm import tqdm

EVERY = 30.0  # seconds between lines

logger = logging.getLogger(__name__)


def duration(seconds: float) -> str:
    """Return a duration in words: "40 s", "5 min 07 s", "3 h 05 min"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


class EpochProgress:
    """The progress of one epoch.

    Args:
        epoch: number of the epoch, from 0.
        num_epochs: number of epochs of the training.
        total: seconds of audio in an epoch.
        done: seconds of audio of this epoch that an earlier process trained on.
        shown: show the progress; only the first rank does.
    """

    def __init__(self, epoch: int, num_epochs: int, total: float, done: float, shown: bool) -> None:
        self.epoch, self.num_epochs, self.total, self.before = epoch, num_epochs, total, done
        self.start = self.written = time.monotonic()
        self.bar = tqdm(
            total=round(total), initial=min(round(total), round(done)), unit=" s", leave=False,
            desc=f"epoch {epoch + 1}/{num_epochs}", dynamic_ncols=True,
            disable=None if shown else True,  # None: only on a terminal
        )  # fmt: skip
        self.in_lines = shown and self.bar.disable

    def update(self, done: float, loss: float | None) -> None:
        """Show `done`, the seconds of audio trained on, and the last step's loss in nats."""
        if loss is not None:
            self.bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
        self.bar.update(min(round(self.total), round(done)) - self.bar.n)
        now = time.monotonic()
        if self.in_lines and now - self.written >= EVERY:
            self.written = now
            rate = max(1e-9, (done - self.before) / (now - self.start))
            left = max(0.0, (self.num_epochs - self.epoch) * self.total - done)
            logger.info(
                "epoch %d/%d  %2.0f %%  loss %.3f  %.0f s of audio a second  about %s left",
                self.epoch + 1, self.num_epochs, 100 * min(1.0, done / max(1e-9, self.total)),
                float("nan") if loss is None else loss, rate, duration(left / rate),
            )  # fmt: skip

    def close(self) -> None:
        """Remove the bar."""
        self.bar.close()
