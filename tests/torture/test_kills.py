"""Commands that are killed, or lose their disk, at random moments (docs/evidence/guarantees.md)."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.torture import commands, kills

RUNS = int(os.environ.get("RUNS", "2"))  # of a command and a force
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")


@pytest.mark.torture
@pytest.mark.parametrize("name", commands.DEEDS)
def test_disturbed_commands_lose_nothing(name: str, tmp_path: Path) -> None:
    """In a new process: where autograd has threads, a forked process cannot train."""
    forces = [*kills.KILLS, *kills.DISKS]
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
    monkeypatch.setattr("asrkit.model_tensors.replacing", careless)
    assert any("damaged" in each for each in kills.faults("pack", [force], 3, tmp_path / "wrong"))
