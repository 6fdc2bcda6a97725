"""Commands that are killed, or lose their disk, at random moments (docs/evidence/guarantees.md)."""

import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from random import Random

import pytest

from tests.torture import commands, kills

RUNS = int(os.environ.get("RUNS", "2"))  # of a command and a force
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")


@pytest.mark.torture
@pytest.mark.parametrize("name", commands.DEEDS)
def test_disturbed_commands_lose_nothing(name: str, tmp_path: Path) -> None:
    """In a new process: where autograd has threads, ranks that are forked cannot train."""
    forces = kills.KILLS if name == kills.KILLED else [*kills.KILLS, *kills.DISKS]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(kills.faults, name, forces, RUNS, tmp_path).result() == []


@contextmanager
def careless(path: str, **options: object) -> Iterator[Path]:
    """A writer into the file itself, after the old one is removed."""
    Path(path).unlink(missing_ok=True)
    Path(path).parent.mkdir(exist_ok=True)
    os.open(path, os.O_CREAT)  # half of it
    yield Path(path)


@pytest.mark.parametrize("force", ["at a write", "limit"])
def test_a_disturbed_command_loses_nothing(
    force: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that writes into its file itself loses the old one: the control."""
    assert kills.faults("pack", [force], 3, tmp_path / "right") == []
    monkeypatch.setattr("asrkit.model_file.replacing", careless)
    assert any("damaged" in each for each in kills.faults("pack", [force], 3, tmp_path / "wrong"))


@pytest.mark.slow
def test_two_ranks_that_are_killed_train_what_they_would_have(tmp_path: Path) -> None:
    """And a wrong weight in an undisturbed run is a difference: the control."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(kill_two_ranks, tmp_path).result()


def kill_two_ranks(tmp_path: Path) -> None:
    whole = commands.prepared("ranks", tmp_path / "ranks")
    whole = whole._replace(changes=whole.changes // 4)  # those of both ranks
    assert len(list((tmp_path / "ranks" / "whole" / "checkpoints").glob("*.pt"))) == 2
    draw = Random(0)
    for expected in (True, False):
        folder = tmp_path / str(expected)
        shutil.copytree(tmp_path / "ranks", folder)
        if not expected:
            model = folder / "whole" / "model.safetensors"
            *data, last = model.read_bytes()
            model.write_bytes(bytes([*data, last ^ 1]))
        status, problem = kills.disturbed("ranks", "at a write", draw, whole, folder)
        assert status == -9
        assert (problem == "") == expected
