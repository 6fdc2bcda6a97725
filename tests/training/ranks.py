"""Trainings of several ranks in processes of their own."""

import json
import socket
import subprocess
import sys
from contextlib import closing

from tests.conftest import PROJECT

TRAIN = """
import json, sys
from asrkit.commands.train import main
assert all(main(arguments) in (0, 130) for arguments in json.loads(sys.argv[1]))
"""


def train_with(
    ranks: int, environment: dict[str, str], *trainings: list[str], before: str = ""
) -> str:
    """Train with so many ranks, one training after another; returns what they write.

    Args:
        ranks: number of processes.
        environment: of them.
        trainings: the arguments of each.
        before: Python that every rank runs first.
    """
    with closing(socket.socket()) as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    group = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    command = [sys.executable, "-c", before + TRAIN, json.dumps(trainings)]
    processes = [
        subprocess.Popen(
            command, cwd=PROJECT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=environment | group | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(ranks)
    ]  # fmt: skip
    told = "".join(process.communicate(timeout=120)[0] for process in processes)
    assert not any(process.returncode for process in processes), told[-5000:]
    return told
