"""Ctrl-C twice: a command ends with one line, without a traceback."""

from tests.running import python

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
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(20)

raise SystemExit(Parser("asrkit x", "X: y", "z").run(command, []))
"""


def test_a_second_interrupt_ends_a_command_without_a_traceback() -> None:
    done = python(PROGRAM)
    assert done.returncode == 130
    assert done.stderr == "asrkit x: stopped\n"
