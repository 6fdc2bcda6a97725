"""Measure what settings gain: python -m tools.studies.ablations tools/studies/an4/ablations.yaml

Trains one short configuration with one change at a time, each with several seeds, scores every
model on the same recordings, and writes a table. The same command resumes after an interruption.
"""

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from asrkit.atomic_write import replacing
from asrkit.cli.parser import Parser
from asrkit.config.read_yaml import ConfigError, read_yaml
from asrkit.errors import UserError
from tools.studies.ablations.folds import joined, write_folds
from tools.studies.ablations.report import Row, Scores, report
from tools.studies.jobs import positive, refuse_other, run_all
from tools.studies.positions.costs import facts_of_machine


class Study(BaseModel):
    """A study's file: settings of all trainings, and the changes of each row, the base first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    config: Path
    held_out: Path  # manifest
    chunk_ms: str  # of the scores, as evaluate takes them
    common: list[str]  # overrides
    rows: dict[str, list[str]]  # name of a change to its overrides
    scores: dict[str, list[str]] = {}  # other ways to score: name to options of evaluate


class Trial(NamedTuple):
    """A training of a row: of one seed, and of one fold of the speakers if there are folds."""

    study: Study
    change: str
    seed: int
    output: Path
    fold: Path | None = None  # has train.jsonl and dev.jsonl

    @property
    def name(self) -> str:
        name = f"{'-'.join(self.change.split())}-{self.seed}"
        return name if self.fold is None else f"{name}-{self.fold.name}"

    @property
    def held_out(self) -> Path:
        return self.study.held_out if self.fold is None else self.fold / "dev.jsonl"

    @property
    def folder(self) -> Path:
        return self.output / self.name

    @property
    def scores(self) -> Path:
        held_out, chunks = self.held_out, self.study.chunk_ms.replace(",", "-")
        return self.folder / f"{held_out.parent.name}-{held_out.stem}-{chunks}.json"

    @property
    def measured(self) -> list[tuple[str, Path, list[str]]]:
        """Name, file and options of each way to score; the name of `chunk_ms` alone is ""."""
        found = [("", self.scores, ["--chunk-ms", self.study.chunk_ms])]
        for name, options in self.study.scores.items():
            slug = re.sub(r"[^\w.]+", "-", " ".join(options))
            found.append((name, self.scores.with_name(f"{self.scores.stem}-{slug}.json"), options))
        return found

    @property
    def overrides(self) -> list[str]:
        own = [f"training.seed={self.seed}", f"training.output_dir={self.folder}",
               "training.num_threads=1", "data.num_workers=0"]  # fmt: skip
        if self.fold is not None:
            own += [f"data.train={self.fold / 'train.jsonl'}", f"data.dev={self.held_out}"]
        return [*self.study.common, *self.study.rows[self.change], *own]

    def steps(self) -> list[list[str]]:
        model = self.folder / "model.safetensors"
        train = ["asrkit.train", "--config", str(self.study.config), "--resume", *self.overrides]
        score = [
            ["asrkit.evaluate", "--model", str(model), *options, "--format", "json",
             "--output", str(path), str(self.held_out)]
            for _, path, options in self.measured
            if not path.is_file()
        ]  # fmt: skip
        return score if model.is_file() else [train, *score]

    def read(self) -> Scores:
        """Return all scores, with the name of the way to score after each context."""
        whole: Scores = {"contexts": {}}
        for name, path, _ in self.measured:
            found = json.loads(path.read_text("utf-8"))
            contexts = {
                f"{context}, {name}" if name else context: each
                for context, each in found["contexts"].items()
            }
            whole = found | {"contexts": whole["contexts"] | contexts}
        return whole


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "tools.studies.ablations",
        __doc__,
        "python -m tools.studies.ablations tools/studies/an4/ablations.yaml",
    )
    arguments.add_argument("study", type=Path, help="YAML file with the base and the changes")
    arguments.add_argument("--seeds", type=positive, default=2, help="seeds of a row (default 2)")
    arguments.add_argument(
        "--folds", type=positive, default=1, metavar="N",
        help="leave every speaker out once: train and held_out are joined and cut into N parts by "
        "speaker, each is scored by a training without it, and a row's scores are those of all N",
    )  # fmt: skip
    arguments.add_argument("--rows", nargs="+", metavar="NAME", help="rows to train (default: all)")
    arguments.add_argument(
        "--jobs", type=positive, default=os.cpu_count(), help="trainings at a time"
    )
    arguments.add_argument(
        "--output", type=Path, default=Path("exp/ablations"), help="folder of the models"
    )
    arguments.add_argument(
        "--report", type=Path, help="report to write (default: report.md beside the models)"
    )
    return arguments.run(ablate, argv)


def ablate(options: argparse.Namespace) -> int:
    study = read_study(options.study)
    names = options.rows or list(study.rows)
    unknown = [name for name in names if name not in study.rows]
    if unknown:
        raise UserError(f"no row {unknown[0]!r} in {options.study}; it has {', '.join(study.rows)}")
    folder = options.output / options.study.parent.name / options.study.stem
    folds: list[Path | None] = [None]
    if options.folds > 1:
        folds = [
            *write_folds(study.held_out.parent, folder / f"{options.folds}folds", options.folds)
        ]
    trials = [
        Trial(study, name, seed, folder, fold)
        for seed in range(options.seeds)
        for name in names
        for fold in folds
    ]
    for trial in trials:
        refuse_other(trial.folder, study.config, trial.overrides)
    failed = run_all(trials, options.jobs)
    rows = [
        Row(name, study.rows[name], read_all([trial for trial in trials if trial.change == name]))
        for name in names
    ]
    if not any(row.models for row in rows):
        print("no training succeeded: there is nothing to report", file=sys.stderr)
        return 1
    command = shlex.join(["python", "-m", "tools.studies.ablations", *sys.argv[1:]])
    facts = {"command": f"`{command}`", "every row": f"`{' '.join(study.common)}`"}
    path = options.report or folder / "report.md"
    with replacing(path) as temporary:
        text = report(facts | facts_of_machine(), rows, next(iter(study.rows)))
        temporary.write_text(text, encoding="utf-8")
    print(f"{path} written" + "".join(f"; failed: {trial.name}" for trial in failed))
    return 1 if failed else 0


def read_study(path: Path) -> Study:
    try:
        return Study.model_validate(read_yaml(path))
    except (OSError, ConfigError, ValidationError) as error:
        raise UserError(f"{path} is not a study: {' '.join(str(error).split())}") from None


def read_all(trials: Sequence[Trial]) -> list[Scores]:
    """The scores of each seed whose trials are all done, those of its folds as one."""
    found = []
    for seed in sorted({trial.seed for trial in trials}):
        own = [trial for trial in trials if trial.seed == seed]
        if all(path.is_file() for trial in own for _, path, _ in trial.measured):
            scores = [trial.read() for trial in own]
            found.append(scores[0] if len(scores) == 1 else joined(scores))
    return found


if __name__ == "__main__":
    sys.exit(main())
