"""Ctrl-C twice: a command ends with one line, without a traceback."""

import os
import subprocess
import sys

import pytest

from tests.conftest import PROJECT

PROGRAM = """
import os, signal, sys, threading, time
from asrkit.cli.parser import Parser

def command(options):
    def later():  # while the process waits for this thread to end
        time.sleep(0.3)
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        time.sleep(20)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=later).start()
    {first}
    time.sleep(20)

raise SystemExit(Parser("asrkit x", "X: y", "z").run(command, []))
"""


@pytest.mark.parametrize(
    "first",
    [
        "os.kill(os.getpid(), signal.SIGINT)",
        "from asrkit.cli.interrupt import until_interrupted as u;"
        " u(iter(lambda: time.sleep(0.05), 1), lambda packet: None)",
    ],
    ids=["command", "stream"],
)
def test_a_second_interrupt_ends_a_command_without_a_traceback(first: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(first=first)], cwd=PROJECT, capture_output=True,
        text=True, timeout=60, env=os.environ | {"PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    assert done.returncode == 130
    assert done.stderr == "asrkit x: stopped\n"
