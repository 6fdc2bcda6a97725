"""Commands as tests call them, and a model for them that has something to say."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import torch

from asrkit.__main__ import main
from asrkit.model_file import ModelFile, save_model
from asrkit.text import CharTokenizer
from tests.conftest import PROJECT, feats_of, fitted, speech
from tests.test_model_file import a_file

ONE_PASS = ("--second-pass", "off")  # of stream, to compare it with decode


def run(command: str, *arguments: object) -> int:
    return main([*command.split(), *map(str, arguments)])


def python(
    program: str, *arguments: object, cwd: Path = PROJECT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, with variables of its environment."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    own = {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"} | variables
    return subprocess.run(
        command, cwd=cwd, env=os.environ | own, capture_output=True, text=True, timeout=300
    )


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        free = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in free:
            each.bind(("localhost", 0))
        return [int(each.getsockname()[1]) for each in free]


def wait_until(holds: Callable[[], object], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


LETTERS = "abcdefghij "  # labels of `talkative`
UNSPACED = "零一二三四五六七八九，"  # as many of a script without spaces


def talkative_model(path: Path, quiet: float = 0.0, labels: str = LETTERS) -> Path:
    """A model file that hears many letters in `speech(2.0)`, and fewer the more it likes blanks."""
    save_model(path, talkative(quiet)._replace(tokenizer=CharTokenizer(list(labels))))
    return path


@cache
def talkative(quiet: float) -> ModelFile:
    file = a_file(CharTokenizer(list(LETTERS)))
    fitted(file.model, feats_of(speech(2.0)))
    with torch.no_grad():
        file.model.head.bias[0] += quiet
    return file
