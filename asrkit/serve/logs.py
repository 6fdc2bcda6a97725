"""What a server writes about its work: a line an event, without audio and without text.

Events have a name and fields. As text they are for people, as JSON for programs:

    2026-11-23T18:00:00Z INFO call: audio_s=4.2 seconds=4.6
    {"time": "2026-11-23T18:00:00Z", "level": "info", "event": "call", "audio_s": 4.2, …}

Clients choose how many lines there are and what some fields hold: both are bounded, and a field
can neither act on a terminal nor look like another field or line.
"""

import json
import logging
import re
import time
from typing import Any

from asrkit.errors import printable

logger = logging.getLogger("asrkit.serve")

OTHERS = ("uvicorn", "asyncio", "websockets")  # libraries whose problems are written, too
WINDOW_S, MOST = 10.0, 500  # lines of a level in each window
LONGEST = 2000  # characters of a line
QUOTED = re.compile(r'[\s="\\]|^$')  # a value with one of these would look like another field


def log(event: str, **fields: str | float | None) -> None:
    """Write down an event."""
    logger.info(event, extra={"fields": fields})


class Lines(logging.Formatter):
    """A record as a line.

    Args:
        form: "text" or "json".
    """

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        fields: dict[str, Any] = dict(getattr(record, "fields", {}))
        event, trace = record.getMessage()[:LONGEST], ""
        if record.exc_info:
            trace = self.formatException(record.exc_info)
        if self.form == "json":
            more = {"exception": trace} if trace else {}
            head = {"time": stamp, "level": record.levelname.lower(), "event": event}
            return json.dumps(head | fields | more)
        told = " ".join(f"{name}={field(value)}" for name, value in fields.items())
        line = printable(f"{stamp} {record.levelname} {event}{told and ': '}{told}")[:LONGEST]
        return "\n    ".join([line, *map(printable, trace.splitlines())])


def field(value: object) -> str:
    """A value of a line of text, in quotes where it has spaces or looks like more fields."""
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if QUOTED.search(text) else text


class Bounded(logging.StreamHandler):
    """Writes at most `MOST` lines of a level in `WINDOW_S`, and then how many more there were.

    Problems and other lines are counted apart, so that a flood of the one hides none of the other.
    """

    def __init__(self) -> None:
        super().__init__()
        self._windows = {True: Window(), False: Window()}

    def emit(self, record: logging.LogRecord) -> None:
        window = self._windows[record.levelno >= logging.WARNING]
        if window.ends(time.monotonic()):
            self._tell(window)
        if window.admits():
            super().emit(record)

    def close(self) -> None:
        for window in self._windows.values():
            self._tell(window)
        super().close()

    def _tell(self, window: "Window") -> None:
        """Write how many lines were left out."""
        count, window.left_out = window.left_out, 0
        if count:
            about = {"levelno": logging.WARNING, "levelname": "WARNING", "msg": "lines left out"}
            record = logging.makeLogRecord({**about, "fields": {"lines": count}})
            super().emit(record)


class Window:
    """A count of lines."""

    def __init__(self) -> None:
        self.began, self.count, self.left_out = time.monotonic(), 0, 0

    def ends(self, now: float) -> bool:
        """Whether the window is over, and another one begins."""
        if now - self.began < WINDOW_S:
            return False
        self.began, self.count = now, 0
        return True

    def admits(self) -> bool:
        """Count one more line; whether it may be written."""
        self.count += 1
        self.left_out += self.count > MOST
        return self.count <= MOST


def set_up(form: str) -> None:
    """Write events to standard error; with "off" only what went wrong."""
    handler = Bounded()
    handler.setFormatter(Lines("text" if form == "off" else form))
    for name in OTHERS:
        logging.getLogger(name).handlers = [handler]
    logger.handlers = [handler]
    logger.setLevel(logging.WARNING if form == "off" else logging.INFO)
