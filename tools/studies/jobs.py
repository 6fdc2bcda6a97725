"""Running the trainings and measurements of a study, several at a time, each step once."""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Protocol, TypeVar

from tqdm import tqdm

from asrkit.cli.parser import whole
from asrkit.config import load_config, parse_config
from asrkit.config.read_yaml import read_yaml
from asrkit.errors import UserError
from asrkit.training.warm_start import load_training

positive = whole(1, 1_000_000)  # a type of argument: seeds, folds, jobs
TAIL_LINES = 12  # of the log of what failed


class Job(Protocol):
    """A model of a study."""

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> Path: ...

    def steps(self) -> list[list[str]]:
        """The steps left to do: Python modules with their arguments."""
        ...


J = TypeVar("J", bound=Job)


def refuse_other(folder: Path, config: Path, overrides: list[str]) -> None:
    """Raises UserError if the folder holds a training with another configuration."""
    path = folder / "config.yaml"
    if not path.is_file():
        load_config(config, overrides)  # a mistake is reported before the first training
        return
    if parse_config(read_yaml(path)) != load_training(config, overrides):
        raise UserError(
            f"{folder} holds a training with other settings: choose another --output, or remove it"
        )


def log_of(job: Job) -> Path:
    return job.folder / "study.log"


def run_all(jobs: Sequence[J], at_once: int) -> list[J]:
    """Run the steps left of the jobs, `at_once` jobs at a time; returns those that failed."""
    left = [job for job in jobs if job.steps()]
    failed: list[J] = []
    with ThreadPoolExecutor(at_once) as pool, tqdm(total=len(left), unit=" model") as bar:
        futures = {pool.submit(run, job): job for job in left}
        try:
            for future in as_completed(futures):
                bar.update()
                if not future.result():
                    failed.append(futures[future])
                    tqdm.write(explain(futures[future]), file=sys.stderr)
        except BaseException:  # Ctrl-C: running jobs get it too, and the others must not begin
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def run(job: Job) -> bool:
    """Run the steps left of a job, with a log; returns whether all succeeded."""
    job.folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log_of(job).open("ab") as log:
        return all(
            subprocess.run(
                [sys.executable, "-m", *step], stdout=log, stderr=log, env=environment, check=False
            ).returncode
            == 0
            for step in job.steps()
        )


def explain(job: Job) -> str:
    lines = log_of(job).read_text("utf-8", errors="replace").splitlines()
    tail = "\n".join(f"    {line}" for line in lines[-TAIL_LINES:])
    return f"{job.name} failed; the end of {log_of(job)}:\n{tail}"
