"""Commands that are killed, or lose their disk, at random moments; then they are run again.

A command runs in a forked process, in most cases beside older results. KILLS end the process
with SIGKILL. DISKS give it a limit of a file's size, like a full disk, or a folder that disappears.
Then each file of the output must be the old one, or that of an undisturbed run, and the command run
again must give all files of an undisturbed run.
"""

import itertools
import os
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from safetensors.torch import load

from asrkit.atomic_write import PREFIX, SUFFIX
from asrkit.training.checkpoints import read_checkpoint
from tests.torture.commands import DEEDS, HANGS, Run, prepared, started

KILLS = ["at a moment", "at a write"]
DISKS = ["limit", "gone"]
PASSING = ("train.log", "tfevents", "left_out.jsonl")


def contents(folder: Path) -> dict[str, Any]:
    """Return the values of the files that commands finish, by their path."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {
        name: value(path)
        for name, path in found.items()
        if path.is_file() and "/." not in f"/{name}" and not any(each in name for each in PASSING)
    }


def value(path: Path) -> Any:
    """Return what a file says, without times, or its error."""
    try:
        return read(path)
    except Exception as error:  # each reader has its own
        return repr(error)


def read(path: Path) -> Any:
    data = path.read_bytes()
    if path.suffix == ".pt":
        return read_checkpoint(path) is not None
    return {name: each.tolist() for name, each in load(data).items()} if data[8:9] == b"{" else data


def disturbance(force: str, draw: Random, whole: Run, folder: Path) -> Callable[[int], None]:
    """Return the function that disturbs a run."""
    place = draw.randrange(whole.changes) + 1
    sizes = [path.stat().st_size for path in (folder / "whole").rglob("*") if path.is_file()]

    def disturb(number: int) -> None:
        if force == "limit" and number == 0:
            most = draw.randrange(max(sizes))
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        elif number == place and force == "at a write":
            os.kill(os.getpid(), signal.SIGKILL)
        elif number == place and force == "gone":
            shutil.rmtree(folder / "out", ignore_errors=True)

    return disturb


def disturbed(name: str, force: str, draw: Random, whole: Run, folder: Path) -> str:
    """Disturb a command in a prepared folder; return what is wrong, or ""."""
    shutil.copytree(folder / "old", folder / "out")
    disturb = disturbance(force, draw, whole, folder)
    after = draw.uniform(0, whole.seconds) if force == "at a moment" else HANGS
    run = started(DEEDS[name][0], folder, disturb, after)
    return problem(name, force, run, folder)


def problem(name: str, force: str, run: Run, folder: Path) -> str:
    """Compare the files of a disturbed run with the old and the new ones, and run it again."""
    out, command = folder / "out", DEEDS[name][0]
    old, new = contents(folder / "old"), contents(folder / "whole")
    if "Traceback" in run.text or run.status not in (0, 1, 2, -signal.SIGKILL):
        return f"status {run.status}: {run.text[-3000:]}"
    if run.status in (1, 2) and not run.text.strip():
        return f"status {run.status} with {force}: {run.text[-3000:]}"
    found = contents(out)
    odd = [each for each in found if found[each] not in (old.get(each), new.get(each))]
    odd = [each for each in odd if not each.startswith("checkpoints/step-")]
    lost = [each for each in old if each not in found and force != "gone" and each != "dev.jsonl"]
    if odd or lost or (run.status == 0 and force != "gone" and found != new):
        return f"status {run.status}: damaged {odd}, lost {lost}: {run.text[-3000:]}"
    if name == "shard" and found == new:
        return ""
    again = started(command, folder)
    if force == "gone" and name == "train" and (again.status == 2 or "lacks" in again.text):
        return again.text[-3000:] if "Traceback" in again.text else ""  # it says what is missing
    if again.status or contents(out) != new:
        return f"again, status {again.status}: {again.text[-3000:]}"
    if force in KILLS:  # the killed process has left its temporary file
        return ""
    left = [str(path) for path in out.rglob(f"{PREFIX}*{SUFFIX}")]
    return f"left: {left}" if left else ""


def faults(name: str, forces: list[str], runs: int, folder: Path) -> list[str]:
    """Disturb a command some times by each force; return what is wrong, with the run's number."""
    whole, found = prepared(name, folder / name), []
    for force, number in itertools.product(forces, range(runs)):
        shutil.copytree(folder / name, folder / "run")
        draw = Random(f"{name} {force} {number}")
        if wrong := disturbed(name, force, draw, whole, folder / "run"):
            found.append(f"{force}, run {number}: {wrong}")
        shutil.rmtree(folder / "run")
    return found
