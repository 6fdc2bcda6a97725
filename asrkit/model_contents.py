"""The contents of a model file, in memory."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from asrkit.config.running import RunningConfig, parse_running
from asrkit.context import Context, FrameRate
from asrkit.errors import UserError, shown
from asrkit.terms import UNKNOWN, Terms
from asrkit.text import Tokenizer

if TYPE_CHECKING:
    from asrkit.config.schema import Config
    from asrkit.model import Network

UNNAMED = "unknown"  # manifests of an imported model, which a configuration must have
START = "start"  # key of the record of an import that has to be trained first


class ModelFileError(UserError):
    """A model file that cannot be loaded; the message has the reason."""


class RunnableModel(NamedTuple):
    """The contents of a model file that running the model needs, except its network."""

    tokenizer: Tokenizer
    config: RunningConfig
    terms: Terms
    live: Context  # default context of decoding
    num_parameters: int
    path: Path | None  # path of the model file, which may be absent beside an export
    checksum: str | None  # SHA-256 that the file states of its contents, and its exports too
    values: dict[str, Any]  # header of the file, or description of the export
    load: "Callable[[], ModelFile]"  # loads the network too, with torch
    export: Path | None = None  # export that was named in place of the model file

    @property
    def training(self) -> dict[str, Any]:
        """Record and scores of the model's training."""
        return self.values.get("training", {})

    @property
    def rate(self) -> FrameRate:
        """Relation of feature frames to encoder frames."""
        return self.config.model.rate

    def context(self, chunk_size: int | str | None, left: int | None, right: int | None) -> Context:
        """Return a context of these numbers of encoder frames; None is the default's.

        An export in full context alone has the default left context of its model for a chunk.
        """
        chunked = chunk_size is not None and self.live.full
        default = self.config.context.live if chunked else self.live
        return self.rate.context(default, chunk_size, left, right)

    def require_trained(self) -> None:
        """Raise ModelFileError for a start, which recognises nothing until it is trained."""
        record = self.training.get("imported")
        if isinstance(record, dict) and record.get(START):
            path = shown(self.path or Path("the model"))
            raise ModelFileError(
                f"{path} is a start, not a recogniser: train it with asrkit train --config whisper"
                f" training.start_from={self.path or 'FILE'} data.train=… data.dev=…"
            )


class ModelFile(NamedTuple):
    """The contents of a model file."""

    model: "Network"  # in eval mode
    tokenizer: Tokenizer
    config: "Config"
    training: dict[str, Any]  # record and scores of its training
    path: Path | None = None  # path of the file that was read
    terms: Terms = UNKNOWN
    checksum: str | None = None  # SHA-256 that the file states of its contents

    @property
    def num_parameters(self) -> int:
        """Number of the network's parameters."""
        return sum(each.numel() for each in self.model.parameters())

    @property
    def runnable(self) -> RunnableModel:
        """Contents that running the model needs, except its network."""
        values = {"config": self.config.model_dump(mode="json"), "training": self.training}
        config = parse_running(values["config"])
        return RunnableModel(
            self.tokenizer, config, self.terms, config.context.live, self.num_parameters, self.path,
            None, values, lambda: self,  # its weights may have changed
        )  # fmt: skip
