"""The part of a configuration that running a model reads, without torch."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from asrkit import audio, search
from asrkit.config.bounds import Section
from asrkit.config.context import ContextConfig
from asrkit.config.error_messages import parsed
from asrkit.config.kinds import AnyFrontend, AnySearch, usually
from asrkit.config.training import TextConfig
from asrkit.context import FrameRate, Subsampled, rate_of
from asrkit.registry import Kinds

NumMels = Annotated[int, Field(ge=4, le=512, multiple_of=4)]

# Keys that only model files and checkpoints of earlier versions have, or that no longer count there
GONE = {
    "training": {
        "average_of", "consistency_ramp", "keep_checkpoints", "parallel", "trackers",
    },
    "position": {"embedding_layernorm", "dropout"},
    "head": {"prune_range", "delay_penalty", "fast_emit"},
    "text": {"unicode_form"},
}  # fmt: skip
KINDS: dict[tuple[str, ...], Kinds[Any]] = {
    ("model", "frontend"): audio.KINDS,
    ("search",): search.KINDS,
}


class Part(Section):
    """A section some of whose keys are read."""

    model_config = ConfigDict(extra="ignore")


class SubsamplingPart(Part):
    kind: Subsampled = "conv4"
    pad_stages: bool = False
    stride: Literal[2, 4, 8] = 2


class HeadPart(Part):
    kind: Literal["ctc", "transducer"] = "ctc"
    max_symbols: Annotated[int, Field(ge=1, le=100_000)] = 10


class ModelPart(Part):
    num_mels: NumMels = 80
    frontend: AnyFrontend = usually("kaldi")
    subsampling: SubsamplingPart = SubsamplingPart()
    head: HeadPart = HeadPart()

    @property
    def rate(self) -> FrameRate:
        """Relation of feature frames to encoder frames."""
        return rate_of(**self.subsampling.model_dump())


class RunningConfig(Part):
    text: TextConfig = TextConfig()
    model: ModelPart = ModelPart()
    context: ContextConfig = ContextConfig()
    search: AnySearch = usually("greedy")


def parse_running(values: Any) -> RunningConfig:
    """Check the part of the configuration in a model file or an export that running it reads."""
    return parsed(RunningConfig, without_gone(values), KINDS)


def without_gone(values: Any, name: str = "", depth: int = 3) -> Any:
    """Return a configuration or its section of this name without the keys of GONE."""
    if not isinstance(values, dict) or not depth:
        return values
    kept = {key: value for key, value in values.items() if key not in GONE.get(name, ())}
    return {key: without_gone(value, key, depth - 1) for key, value in kept.items()}
