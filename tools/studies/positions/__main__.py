"""Compare all position encodings: python -m tools.studies.positions --quick

Trains the model of conf/positions.yaml with every kind on the same data, measures all of them in
the same way, and writes a report. The same command goes on after an interruption.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asrkit.cli.options import parser
from asrkit.cli.run import run_command
from asrkit.errors import UserError
from asrkit.model.positions import KINDS
from tools.studies.jobs import positive, run_all
from tools.studies.positions.corpora import CONFIG, CORPORA, prepare
from tools.studies.positions.costs import facts_of_machine
from tools.studies.positions.report import write_report
from tools.studies.positions.trainings import Training

REPORT = Path(__file__).with_name("REPORT.md")


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "tools.studies.positions", __doc__,
        "python -m tools.studies.positions --quick\n"
        "  python -m tools.studies.positions --corpora digits an4 --seeds 3 1\n"
        "  python -m tools.studies.positions model.dim=144 --kinds none rotary --output exp/wider",
    )  # fmt: skip
    arguments.add_argument(
        "--quick", action="store_true", help="digits, one seed, a minute of training for each kind"
    )
    arguments.add_argument(
        "--corpora", nargs="+", choices=CORPORA, help="default: digits, and an4 if it is there"
    )
    arguments.add_argument(
        "--seeds",
        nargs="+",
        type=positive,
        metavar="N",
        help="trainings of a kind (default 3; quick 1), or one number for each corpus",
    )
    arguments.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND",
        help=f"default all: {', '.join(KINDS)}",
    )  # fmt: skip
    arguments.add_argument(
        "--jobs", type=positive, default=os.cpu_count(), help="trainings at a time (default: cores)"
    )
    arguments.add_argument("--output", type=Path, default=Path("exp/positions"), help="of models")
    arguments.add_argument(
        "--report", type=Path, help=f"default: {REPORT.name} of this recipe; quick: in --output"
    )
    arguments.add_argument(
        "overrides", nargs="*", metavar="section.key=value", help="for every training; come first"
    )
    return run_command(study, arguments, argv)


def study(options: argparse.Namespace) -> int:
    if not CONFIG.is_file():
        raise UserError(f"no {CONFIG} here ({Path.cwd()}); run from the project's folder")
    names = options.corpora or default_corpora(options.quick)
    seeds = options.seeds or [1 if options.quick else 3]
    if len(seeds) not in (1, len(names)):
        raise UserError(f"--seeds takes one number, or {len(names)} for {', '.join(names)}")
    each = seeds * len(names) if len(seeds) == 1 else seeds
    trainings = plan(options, dict(zip(names, each, strict=True)))
    for training in trainings:
        training.check()
    for name in names:
        prepare(CORPORA[name])
    failed = [training.name for training in run_all(trainings, options.jobs)]
    measures = {name: read_measures(trainings, name) for name in names}
    if not any(measures.values()):
        raise UserError("no model could be trained and measured; see above")
    costs = read_costs(options)
    failed += [] if costs else ["the measurement of time and memory"]
    command = shlex.join(["python", "-m", "tools.studies.positions", *sys.argv[1:]])
    report = options.report or (options.output / REPORT.name if options.quick else REPORT)
    write_report(report, {"command": f"`{command}`"} | facts_of_machine(), measures, costs, failed)
    print(f"{report} written" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def read_measures(trainings: Sequence[Training], name: str) -> list[dict[str, Any]]:
    """The measures of a corpus's models, as far as there are any."""
    paths = [t.measures for t in trainings if t.corpus.name == name and t.measures.is_file()]
    return [json.loads(path.read_text("utf-8")) for path in paths]


def read_costs(options: argparse.Namespace) -> dict[str, Any]:
    """Time and memory of the kinds, measured now unless they were; nothing if that failed.

    In a process of its own, after all trainings: nothing else of the study runs beside it.
    """
    path = options.output / "costs.json"
    wanted = {"overrides": options.overrides, "commit": facts_of_machine()["commit"]}
    costs: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    same = all(costs.get(key) == value for key, value in wanted.items())
    if same and costs["kinds"].keys() >= set(options.kinds):
        return dict(costs["kinds"])
    command = [sys.executable, "-m", "tools.studies.positions.costs", "--output", str(path)]
    command += [*options.overrides, "--kinds", *options.kinds]
    if subprocess.run(command, check=False).returncode:
        return {}
    return dict(json.loads(path.read_text("utf-8"))["kinds"])


def default_corpora(quick: bool) -> list[str]:
    """Quick is one corpus; else those whose data is here."""
    return ["digits"] if quick else [name for name, corpus in CORPORA.items() if corpus.is_here()]


def plan(options: argparse.Namespace, seeds: dict[str, int]) -> list[Training]:
    """All trainings, so that an early end leaves whole rounds of kinds.

    Args:
        options: of the command line.
        seeds: how many of each corpus.
    """
    return [
        Training(CORPORA[name], options.quick, kind, seed, options.output, tuple(options.overrides))
        for name, count in seeds.items()
        for seed in range(count)
        for kind in dict.fromkeys(options.kinds)
    ]


if __name__ == "__main__":
    sys.exit(main())
