"""The steps of each model of the study: training and measuring."""

from pathlib import Path
from typing import NamedTuple

from tools.studies.jobs import refuse_other
from tools.studies.positions.corpora import CONFIG, Corpus


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
    def overrides(self) -> list[str]:
        own = [f"model.position.kind={self.kind}", f"training.seed={self.seed}",
               f"training.output_dir={self.folder}"]  # fmt: skip
        return [*self.corpus.overrides(self.quick), *self.more, *own]

    def check(self) -> None:
        """Refuse a folder that holds a training with another configuration.

        Raises:
            UserError: if the folder holds a training with another configuration.
        """
        refuse_other(self.folder, CONFIG, self.overrides)

    def steps(self) -> list[list[str]]:
        """The modules that are left to run: training, measuring, or nothing."""
        # --resume goes on after a kill, and begins where there is nothing yet.
        train = ["asrkit.train", "--config", str(CONFIG), "--resume", *self.overrides]
        measure = ["tools.studies.positions.measure", "--model", str(self.model),
                   "--manifest", str(self.corpus.manifest(self.corpus.held_out)),
                   "--output", str(self.measures)]  # fmt: skip
        if not self.model.is_file():
            return [train, measure]
        return [] if self.measures.is_file() else [measure]
