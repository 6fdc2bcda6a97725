"""Trainings of several ranks in processes of their own."""

import json
import subprocess
import sys

from tests.conftest import PROJECT
from tests.running import free_ports

TRAIN = """
import json, os, sys
from asrkit.train import main
for arguments, os.environ["MASTER_PORT"] in json.loads(sys.argv[1]):
    assert main(arguments) in (0, 130)
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
    # A port for each: what is left of a training's store would answer the next one.
    ports = map(str, free_ports(len(trainings)))
    each = json.dumps(list(zip(trainings, ports, strict=True)))
    group = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost"}
    command = [sys.executable, "-c", before + TRAIN, each]
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
