"""Training and measuring one model after the other or side by side, each step once."""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import yaml
from tqdm import tqdm

from asrkit.config import load_config, parse_config
from asrkit.errors import UserError
from recipes.positions.corpora import CONFIG, Corpus

TAIL_LINES = 12  # of the log of what failed


class Training(NamedTuple):
    """One model of the study."""

    corpus: Corpus
    quick: bool
    kind: str
    seed: int
    output: Path
    more: tuple[str, ...] = ()  # overrides by the user

    @property
    def name(self) -> str:
        return f"{self.corpus.name}{'-quick' if self.quick else ''}/{self.kind}-{self.seed}"

    @property
    def folder(self) -> Path:
        return self.output / self.name

    @property
    def model(self) -> Path:
        return self.folder / "model.safetensors"

    @property
    def measures(self) -> Path:
        return self.folder / "measures.json"

    @property
    def log(self) -> Path:
        return self.folder / "study.log"

    @property
    def overrides(self) -> list[str]:
        own = [f"model.position.kind={self.kind}", f"training.seed={self.seed}",
               f"training.output_dir={self.folder}"]  # fmt: skip
        return [*self.corpus.overrides(self.quick), *self.more, *own]

    def check(self) -> None:
        """Refuse to go on with, or to report, what was trained in another way.

        Raises:
            UserError: if the folder holds a training with another configuration.
        """
        path = self.folder / "config.yaml"
        wanted = load_config(CONFIG, self.overrides)
        if path.is_file() and parse_config(yaml.safe_load(path.read_text("utf-8"))) != wanted:
            raise UserError(
                f"{self.folder} holds a training with other settings: "
                "choose another --output, or remove it"
            )

    def steps(self) -> list[list[str]]:
        """The commands that are left to do: training, measuring, or nothing."""
        # --resume goes on after a kill, and begins where there is nothing yet.
        train = ["-m", "asrkit.train", "--config", str(CONFIG), "--resume", *self.overrides]
        measure = ["-m", "recipes.positions.measure", "--model", str(self.model),
                   "--manifest", str(self.corpus.manifest(self.corpus.held_out)),
                   "--output", str(self.measures)]  # fmt: skip
        if not self.model.is_file():
            return [train, measure]
        return [] if self.measures.is_file() else [measure]


def run_all(trainings: Sequence[Training], jobs: int) -> list[Training]:
    """Train and measure what is left, `jobs` at a time; those that failed."""
    left = [training for training in trainings if training.steps()]
    failed: list[Training] = []
    with ThreadPoolExecutor(jobs) as pool, tqdm(total=len(left), unit=" model") as bar:
        futures = {pool.submit(run, training): training for training in left}
        try:
            for future in as_completed(futures):
                bar.update()
                if not future.result():
                    failed.append(futures[future])
                    tqdm.write(explain(futures[future]), file=sys.stderr)
        except BaseException:  # Ctrl-C: what runs has had it too, and the rest must not begin
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def run(training: Training) -> bool:
    """Do the steps that are left, with a log; whether all went well."""
    training.folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with training.log.open("ab") as log:
        return all(
            subprocess.run(
                [sys.executable, *step], stdout=log, stderr=log, env=environment, check=False
            ).returncode
            == 0
            for step in training.steps()
        )


def explain(training: Training) -> str:
    lines = training.log.read_text("utf-8", errors="replace").splitlines()
    tail = "\n".join(f"    {line}" for line in lines[-TAIL_LINES:])
    return f"{training.name} failed; the end of {training.log}:\n{tail}"
