"""The server's log: a line for each event, without audio and without recognised text.

An event has a name and fields. The text form is for people, the JSON form for programs:

    2026-11-23T18:00:00Z INFO call: audio_s=4.2 seconds=4.6
    {"time": "2026-11-23T18:00:00Z", "level": "info", "event": "call", "audio_s": 4.2, …}

Clients influence the number of lines and the content of some fields. Both are bounded, and a field
can neither control a terminal nor look like another field or line.
"""

import asyncio
import json
import logging
import re
import time
from typing import Any

from asrkit.errors import printable

logger = logging.getLogger("asrkit.serve")

WINDOW_S, MOST = 10.0, 500  # seconds of a window; lines of each level in a window
LONGEST = 2000  # characters of a line
QUOTED = re.compile(r'[\s="\\]|^$')  # a value with one of these would look like another field


def log(event: str, **fields: str | float | None) -> None:
    """Log an event."""
    logger.info(event, extra={"fields": fields})


class Lines(logging.Formatter):
    """A formatter that makes a line of a record.

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
        rest = " ".join(f"{name}={field(value)}" for name, value in fields.items())
        line = printable(f"{stamp} {record.levelname} {event}{rest and ': '}{rest}")[:LONGEST]
        return "\n    ".join([line, *map(printable, trace.splitlines())])


def field(value: object) -> str:
    """Return a value for a line of text, in quotes if it could look like several fields."""
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if QUOTED.search(text) else text


class Bounded(logging.StreamHandler):
    """A handler that writes at most `MOST` lines in `WINDOW_S`, and then the number left out.

    Problems and other lines are counted separately, so that a flood of one hides none of the other.
    """

    def __init__(self) -> None:
        super().__init__()
        self._windows = {True: Window(), False: Window()}

    def filter(self, record: logging.LogRecord) -> bool:
        """Reject uvicorn's needless records.

        It has logged the number of cancelled calls in one line, before their tracebacks. And it
        takes a rejected handshake for an incomplete one (its pull request 3138).
        """
        is_cancelled = record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError)
        is_rejected = record.msg == "ASGI callable returned without completing handshake."
        return not (is_cancelled or is_rejected) and bool(super().filter(record))

    def emit(self, record: logging.LogRecord) -> None:
        window = self._windows[record.levelno >= logging.WARNING]
        if window.ends(time.monotonic()):
            self._report(window)
        if window.admits():
            super().emit(record)

    def close(self) -> None:
        for window in self._windows.values():
            self._report(window)
        super().close()

    def _report(self, window: "Window") -> None:
        """Write the number of lines that were left out."""
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
        """Begin another window if this one is over; return whether it was."""
        if now - self.began < WINDOW_S:
            return False
        self.began, self.count = now, 0
        return True

    def admits(self) -> bool:
        """Count one more line, and return whether it may be written."""
        self.count += 1
        self.left_out += self.count > MOST
        return self.count <= MOST


def set_up(form: str) -> None:
    """Write events, and the problems of all libraries, to standard error; with "off" only problems.

    Other handlers remain.
    """
    handler = Bounded()
    handler.setFormatter(Lines("text" if form == "off" else form))
    root = logging.getLogger()
    root.handlers = [*(each for each in root.handlers if not isinstance(each, Bounded)), handler]
    logger.setLevel(logging.WARNING if form == "off" else logging.INFO)
    logging.captureWarnings(True)
