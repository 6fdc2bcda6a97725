"""The contents of a model file, in memory."""

from pathlib import Path
from typing import Any, NamedTuple

from asrkit.config import Config
from asrkit.errors import UserError, shown
from asrkit.model import Network
from asrkit.terms import UNKNOWN, Terms
from asrkit.text import Tokenizer

UNNAMED = "unknown"  # manifests of an imported model, which a configuration must have
START = "start"  # key of the record of an import that has to be trained first


class ModelFileError(UserError):
    """A model file that cannot be loaded; the message has the reason."""


class ModelFile(NamedTuple):
    """The contents of a model file."""

    model: Network  # in eval mode
    tokenizer: Tokenizer
    config: Config
    training: dict[str, Any]  # record and scores of its training
    path: Path | None = None  # path of the file that was read
    terms: Terms = UNKNOWN

    @property
    def is_start(self) -> bool:
        """Whether the model has to be trained before it recognises anything."""
        record = self.training.get("imported")
        return isinstance(record, dict) and bool(record.get(START))

    def require_trained(self) -> None:
        """Raise ModelFileError for a start."""
        if self.is_start:
            path = shown(self.path or Path("the model"))
            raise ModelFileError(
                f"{path} is a start, not a recogniser: train it with asrkit train --config whisper"
                f" training.start_from={self.path or 'FILE'} data.train=… data.dev=…"
            )

    @property
    def num_parameters(self) -> int:
        """Number of the network's parameters."""
        return sum(each.numel() for each in self.model.parameters())
