"""The log of a server: clients cannot write lines or escapes of their own."""

import io
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from starlette.requests import Request
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from asrkit.runtime import Recognizer
from asrkit.serve import logs
from asrkit.serve.dialects import files
from asrkit.serve.server import Server
from tests.running import python, wait_until
from tests.serve.running import serving
from tests.serve.test_decode import HEAD

HOSTILE = "/\x1b[31m\n2026-01-01T00:00:00Z INFO call: x=1\u202e\x9b2J status=200"


@pytest.fixture(params=["text", "json"])
def written(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What a log of this form writes."""
    root = logging.getLogger()
    logs.set_up(request.param)
    (handler,) = [each for each in root.handlers if each.name == logs.NAME]
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(io.StringIO())
    yield handler.stream
    root.removeHandler(handler)
    logging.captureWarnings(False)


def test_what_clients_send_stays_one_printable_line(written: io.StringIO) -> None:
    """A traceback is indented and printable."""
    logs.log("http", path=HOSTILE, status=404)
    logs.logger.warning("a call of %s failed", HOSTILE)
    logs.log("call", model="m", seconds=0.5, reason=None)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logs.logger.exception("failed")
    lines = written.getvalue().splitlines()
    assert all(line.isprintable() for line in lines)
    assert json.loads(lines[0][lines[0].index("{") :])["path"] == HOSTILE
    assert lines[2].endswith('"model": "m", "seconds": 0.5, "reason": null}')  # control
    assert all(line.startswith("    ") for line in lines[4:])
    assert "ValueError" in "".join(lines[3:])


def test_requests_that_are_cancelled_at_the_end_are_one_line(
    served: Recognizer, written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was a traceback when a process was replaced."""
    begun: list[Request] = []
    monkeypatch.setattr(files, "bounded", lambda request, server: begun.append(request) or request)
    head = HEAD % 1000
    with ExitStack() as stack, serving(Server({"m": served}), grace_s=1) as address:
        host, port = address.split(":")
        for _ in range(3):
            client = stack.enter_context(socket.create_connection((host, int(port))))
            client.sendall(head)
        wait_until(lambda: len(begun) == 3)
    problems = [line for line in written.getvalue().splitlines() if "error" in line.lower()]
    assert len(problems) == 1
    assert "Cancel 3 running task(s)" in problems[0]


def test_a_rejected_handshake_is_no_line(served: Recognizer, written: io.StringIO) -> None:
    with serving(Server({"m": served})) as address, pytest.raises(InvalidStatus):
        connect(f"ws://{address}/v1/nothing")
    assert written.getvalue() == ""


def test_problems_of_libraries_are_lines_of_the_log() -> None:
    """An old python-multipart warned in plain text, which programs could not read."""
    done = python(
        "import logging, warnings; from asrkit.serve import logs; logs.set_up('json')\n"
        "for name in ('python_multipart.multipart', 'uvicorn.error', 'asyncio', 'asrkit.audio'):\n"
        "    logging.getLogger(name).info('fine')\n"
        "    logging.getLogger(name).warning('bad')\n"
        "logs.log('call'); warnings.warn('old')\n"
    )
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert events[:5] == ["bad"] * 4 + ["call"]
    assert "UserWarning: old" in events[5]
    assert len(events) == 6
