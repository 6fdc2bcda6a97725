"""What training leaves on disk: checkpoints to resume from, weights of epochs to average."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from asrkit.config import Config
from asrkit.files import replacing
from asrkit.training.corpus import Corpus


class Checkpoints:
    """The newest few training checkpoints of a folder, each written atomically.

    Args:
        folder: made if missing.
        keep: how many.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def save(self, step: int, state: dict[str, Any]) -> None:
        with replacing(self.folder / f"step-{step:08d}.pt") as temporary:
            torch.save(state, temporary)
        for old in self.paths()[: -self.keep]:
            old.unlink()

    def load_newest(self) -> dict[str, Any] | None:
        """The newest checkpoint, or None if there is none."""
        paths = self.paths()
        if not paths:
            return None
        return torch.load(paths[-1], map_location="cpu", weights_only=True)

    def paths(self) -> list[Path]:
        return sorted(self.folder.glob("step-*.pt"))


def identity(config: Config, corpus: Corpus) -> dict[str, str]:
    """What must not change when a training is resumed."""
    cuts = [] if corpus.train.is_lazy else [f"{cut.id} {cut.duration}" for cut in corpus.train]
    parts = {
        "the configuration's model": config.model.model_dump_json().encode(),
        "the tokenizer": corpus.encode.tokenizer.to_bytes(),
        "the training utterances": "\n".join(cuts).encode(),
        "training.optimizer": config.training.optimizer.encode(),
    }
    return {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()}


class EpochWeights:
    """Weights of the last or the best epochs, and their average.

    Args:
        folder: made if missing.
        keep: how many epochs.
        best: keep those of the lowest score; else the last.
    """

    def __init__(self, folder: Path, keep: int, best: bool) -> None:
        self.folder, self.keep, self.best = folder, keep, best

    def save(self, epoch: int, weights: dict[str, Tensor], scores: dict[int, float]) -> None:
        """Write an epoch's weights; `scores` of all epochs so far say which ones stay."""
        with replacing(self.path(epoch)) as temporary:
            save_file({name: t.cpu().contiguous() for name, t in weights.items()}, temporary)
        for old in set(self.epochs()) - set(self.chosen(scores)):
            self.path(old).unlink()

    def average(self, scores: dict[int, float]) -> dict[str, Tensor]:
        """Mean of the chosen epochs' weights, summed in float64."""
        files = [load_file(self.path(epoch)) for epoch in self.chosen(scores)]
        return {
            name: torch.stack([file[name].double() for file in files]).mean(0).to(tensor.dtype)
            for name, tensor in files[0].items()
        }

    def chosen(self, scores: dict[int, float]) -> list[int]:
        epochs = self.epochs()
        if not self.best:
            return epochs[-self.keep :]
        scored = [epoch for epoch in epochs if epoch in scores]
        return sorted(scored, key=lambda epoch: scores[epoch])[: self.keep] or epochs[-1:]

    def epochs(self) -> list[int]:
        return sorted(
            int(path.stem.split("-")[1]) for path in self.folder.glob("epoch-*.safetensors")
        )

    def path(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:04d}.safetensors"
