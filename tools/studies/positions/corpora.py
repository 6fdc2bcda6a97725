"""The corpora of the study, each with its held-out part and the length of its trainings."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from asrkit.errors import UserError

CONFIG = Path("conf/positions.yaml")
# Two trainings of one thread each take less time than one of two threads after the other.
ONE_THREAD = ["data.num_workers=0", "training.num_threads=1", "training.keep_checkpoints=1"]


class Corpus(NamedTuple):
    name: str  # of its folder in recipes/ and in data/
    held_out: str  # the split that is measured; no choice is made by it
    full: list[str]  # overrides of CONFIG
    quick: list[str]
    prepared: Path | None = None  # a folder that its recipe reads, for want of manifests

    @property
    def folder(self) -> Path:
        return Path("data") / self.name

    def manifest(self, split: str) -> Path:
        return self.folder / f"{split}.jsonl"

    def overrides(self, quick: bool) -> list[str]:
        paths = [f"data.{split}={self.manifest(split)}" for split in ("train", "dev")]
        length = self.quick if quick else self.full
        # `prepare` has made the manifests: trainings side by side must not.
        return ["data.recipe=null", *paths, *ONE_THREAD, *length]

    def is_here(self) -> bool:
        """Whether there are manifests, or the recipe can make them without further options."""
        makes_its_own = self.name == "digits"
        found = self.prepared is not None and self.prepared.is_dir()
        return makes_its_own or found or self.manifest("train").is_file()


# One epoch of digits at one speed is about a minute of one core.
SHORT = ["augmentation.speed_factors=[1.0]", "data.max_batch_seconds=6"]
CORPORA = {
    "digits": Corpus("digits", "test", full=["augmentation.speed_factors=[0.9, 1.1]"], quick=SHORT),
    "an4": Corpus(
        "an4",
        "dev",
        full=[
            "training.epochs=4",
            "training.validate_every_epochs=4",
            "augmentation.spec_probability=1",  # masks help in twelve epochs
        ],
        quick=[*SHORT, "training.epochs=4", "training.validate_every_epochs=4"],
        prepared=Path("../shared/data/an4"),
    ),
}


def prepare(corpus: Corpus) -> None:
    """Make the manifests with the corpus's own recipe where they are missing.

    Raises:
        UserError: if it has nothing to make them from, or fails.
    """
    if all(corpus.manifest(split).is_file() for split in ("train", "dev", corpus.held_out)):
        return
    script = Path("recipes") / corpus.name / "prepare.py"
    command = [str(script), "--output-dir", str(corpus.folder)]
    if not corpus.is_here():
        raise UserError(
            f"no {corpus.manifest('train')}; make it with: python {' '.join(command)} --download"
        )
    if corpus.prepared is not None:
        command += ["--data-dir", str(corpus.prepared)]
    if subprocess.run([sys.executable, *command], check=False).returncode:
        raise UserError(f"{script} failed; see above")
