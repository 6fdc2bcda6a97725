"""The server's log: a line for each event, without audio and without recognised text.

An event has a name and fields. The text form is for people, the JSON form for programs:

    2026-11-23T18:00:00Z INFO call: {"audio_s": 4.2, "seconds": 4.6}
    {"time": "2026-11-23T18:00:00Z", "level": "info", "event": "call", "audio_s": 4.2, …}

Clients influence the content of some fields, which can neither control a terminal nor look like
another field or line.
"""

import asyncio
import json
import logging
import time

from asrkit.errors import printable

NAME = "asrkit.serve"  # of the logger and of its handler
LONGEST = 2000  # characters of a line

logger = logging.getLogger(NAME)


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
        fields, event = dict(getattr(record, "fields", {})), record.getMessage()[:LONGEST]
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self.form == "json":
            head = {"time": stamp, "level": record.levelname.lower(), "event": event}
            return json.dumps(head | fields | ({"exception": trace} if trace else {}))
        rest = f": {json.dumps(fields)}" if fields else ""
        line = printable(f"{stamp} {record.levelname} {event}{rest}")[:LONGEST]
        return "\n    ".join([line, *map(printable, trace.splitlines())])


def is_needed(record: logging.LogRecord) -> bool:
    """Whether to write a record; uvicorn has some that say nothing new.

    It has logged the number of cancelled calls in one line, before their tracebacks. And it takes a
    rejected handshake for an incomplete one (its pull request 3138).
    """
    is_cancelled = record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError)
    is_rejected = record.msg == "ASGI callable returned without completing handshake."
    return not (is_cancelled or is_rejected)


def set_up(form: str) -> None:
    """Write events, and the problems of all libraries, to standard error; with "off" only problems.

    Other handlers remain.
    """
    handler = logging.StreamHandler()
    handler.name = NAME
    handler.setFormatter(Lines("text" if form == "off" else form))
    handler.addFilter(is_needed)
    root = logging.getLogger()
    root.handlers = [*(each for each in root.handlers if each.name != NAME), handler]
    logger.setLevel(logging.WARNING if form == "off" else logging.INFO)
    logging.captureWarnings(True)
