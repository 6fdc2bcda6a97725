"""Try mutated inputs of every kind that asrkit reads, each in a process with limits.

    python -m tools.torture --parts audio,models --seconds 60 --seed 0
    python -m tools.torture --parts audio --again build/torture/audio/FIND/input.wav

A fault is a crash, more than 10 s of CPU time, memory over the part's bound, or an exception that
is not asrkit's own. Files written outside their folder, started programs and audio lost without a
word are faults too. Each is reduced and written to --out; the exit status is 1 if there is one. A
seed gives the same inputs in the same order. Parts `kills` and `disks`: see tools/torture/kills.py.
"""

import argparse
import hashlib
import logging
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

from tools.torture.cage import REFUSED, Outcome, Part, outcomes
from tools.torture.kills import FORCES, force
from tools.torture.kinds import PARTS
from tools.torture.mutations import mutated

BATCH = 500  # inputs of a process
MEMORY = Path("/dev/shm")  # on a disk, writing an input takes longer than reading it
TRIALS = 40  # inputs tried to reduce a fault


class Case(NamedTuple):
    """An input: a valid one with mutations."""

    source: Path  # the valid file or folder
    other: Path  # another one, for splices
    steps: tuple[int, ...]  # seeds of the mutations

    def write(self, folder: Path) -> Path:
        """Write the input into a folder and return its path."""
        target = folder / self.source.name
        if self.source.is_dir():
            shutil.copytree(self.source, target)
        else:
            shutil.copyfile(self.source, target)
        others = files_in(self.other)
        for step in self.steps:
            draw = Random(step)
            path = draw.choice(files_in(target))
            other = draw.choice(others).read_bytes()[: 1 << 20]
            path.write_bytes(mutated(path.read_bytes(), other, draw))
        return target


def files_in(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def drawn(seeds: list[Path], number: int, seed: str) -> Case:
    """Draw an input; the first ones are the valid files as they are."""
    if number < len(seeds):
        return Case(seeds[number], seeds[number], ())
    draw = Random(f"{seed} {number}")
    count = draw.choice([1, 1, 1, 2, 3, 5])
    steps = tuple(draw.getrandbits(32) for _ in range(count))
    return Case(draw.choice(seeds), draw.choice(seeds), steps)


def reduced(part: Part, case: Case, found: Outcome, folder: Path) -> Path:
    """Return the path of an input with the same fault: fewer mutations, and a shorter file."""
    trials = 0

    def fails(write: Callable[[Path], Path]) -> bool:
        nonlocal trials
        trials += 1
        got = list(outcomes(part, [(0, write)], folder))
        return trials <= TRIALS and bool(got) and got[0][1].signature == found.signature

    for step in case.steps:
        fewer = case._replace(steps=tuple(each for each in case.steps if each != step))
        if len(fewer.steps) and fails(fewer.write):
            case = fewer
    kept = folder / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    path = case.write(kept)
    size = path.stat().st_size // 2 if path.is_file() else 0
    while size and trials < TRIALS:
        at = 0
        while at < path.stat().st_size and trials < TRIALS:
            data = path.read_bytes()

            def shorter(where: Path, data: bytes = data[:at] + data[at + size :]) -> Path:
                target = where / path.name
                target.write_bytes(data)
                return target

            if fails(shorter):
                shorter(kept)
            else:
                at += size
        size //= 2
    return path


def seeds_of(part: Part, out: Path) -> list[Path]:
    """Return the valid inputs of a part, in its folder of faults; read each once."""
    if not (out / "seeds").exists():
        (out / "seeds").mkdir(parents=True)
        part.seeds(out / "seeds")
    seeds = sorted((out / "seeds").resolve().iterdir())
    logging.getLogger("asrkit").addHandler(logging.NullHandler())
    for seed in seeds:  # imports, which a process with limits could not do
        with suppress(Exception), tempfile.TemporaryDirectory() as once:
            part.run(Case(seed, seed, ()).write(Path(once)), [])
    return seeds


def torture(name: str, options: argparse.Namespace, folder: Path) -> int:
    """Try inputs of a part for some time; return the number of different faults.

    An input that was not tried counts as one: a process with limits may not start here.
    """
    part, out = PARTS[name], Path(options.out) / name
    seeds = seeds_of(part, out)
    counts, faults, number = Counter[str](), Counter[str](), options.first
    end, last = time.monotonic() + options.seconds, number + options.inputs
    while time.monotonic() < end and number < last:
        batch = range(number, min(last, number + BATCH))
        cases = {n: drawn(seeds, n, f"{options.seed} {name}") for n in batch}
        inputs = [(n, case.write) for n, case in cases.items()]
        for done, outcome in outcomes(part, inputs, folder / "tried"):
            number = done + 1
            counts[outcome.kind] += 1
            if outcome.is_fault:
                faults[outcome.signature] += 1
                if faults[outcome.signature] == 1:
                    about = f"seed {options.seed}, input {done}"
                    keep(part, name, cases[done], outcome, about, out, folder / "reduced")
            if time.monotonic() > end:
                break
    tried = sum(counts.values())
    print(
        f"{name}: {tried} inputs, {counts[REFUSED]} refused, {sum(faults.values())} faults",
        flush=True,
    )
    for signature, count in faults.most_common():
        print(f"  {count:6} {signature}", flush=True)
    return len(faults) or not tried


def keep(
    part: Part, name: str, case: Case, found: Outcome, about: str, out: Path, folder: Path
) -> None:
    """Write a fault: its reduced input, seed and traceback."""
    path = reduced(part, case, found, folder)
    place = out / hashlib.sha256(found.signature.encode()).hexdigest()[:8]
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    kept = place / path.name
    shutil.move(path, kept)
    again = f"python -m tools.torture --parts {name} --again {kept}"
    head = f"{found.signature}\n{about}, from {case.source.name}\n{again}\n\n"
    (place / "about.txt").write_text(head + found.detail, errors="backslashreplace")
    print(f"{name}: {found.signature}: {kept}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [*PARTS, *FORCES]
    parser.add_argument(
        "--parts", default=",".join(known), help=f"parts (default: all of {', '.join(known)})"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="time of each part")
    parser.add_argument("--inputs", type=int, default=1 << 62, help="most inputs of each part")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--out", default="build/torture", help="folder of the faults")
    parser.add_argument("--again", metavar="PATH", help="try one input of the part once more")
    options = parser.parse_args()
    names, faults = options.parts.split(","), 0
    if unknown := [each for each in names if each not in known]:
        parser.error(f"unknown parts {', '.join(unknown)}: choose from {', '.join(known)}")
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    for name in names:
        with tempfile.TemporaryDirectory(prefix="torture-", dir=place) as folder:
            if name in FORCES:
                faults += force(name, options.seed, options.first, options.seconds, Path(folder))
            elif options.again:
                seeds_of(PARTS[name], Path(options.out) / name)  # not the input: no limits here
                path = Path(options.again).resolve()
                case = Case(path, path, ())
                for _, outcome in outcomes(PARTS[name], [(0, case.write)], Path(folder)):
                    print(outcome.signature, outcome.detail, sep="\n")
                    faults += outcome.is_fault
            else:
                faults += torture(name, options, Path(folder))
    if len(names) > 1:
        print(f"{len(names)} parts, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
