"""What a server writes about its work: a line an event, without audio and without text.

Events have a name and fields. As text they are for people, as JSON for programs:

    2026-11-23T18:00:00Z INFO call: audio_s=4.2 seconds=4.6
    {"time": "2026-11-23T18:00:00Z", "level": "info", "event": "call", "audio_s": 4.2, …}
"""

import json
import logging
import time
from typing import Any

logger = logging.getLogger("asrkit.serve")


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
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if self.form == "json":
            head = {"time": stamp, "level": record.levelname.lower(), "event": record.getMessage()}
            return json.dumps(head | fields)
        told = " ".join(f"{name}={value}" for name, value in fields.items())
        return f"{stamp} {record.levelname} {record.getMessage()}{told and ': '}{told}"


def set_up(form: str) -> None:
    """Write events to standard error; with "off" only what went wrong."""
    handler = logging.StreamHandler()
    handler.setFormatter(Lines("text" if form == "off" else form))
    logger.handlers = [handler]
    logger.setLevel(logging.WARNING if form == "off" else logging.INFO)
