"""The settings that running a model reads, without torch, and the settings of decoding."""

from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from asrkit.config.bounds import Number, NumberFromZero, Section
from asrkit.config.context import ContextConfig
from asrkit.config.error_messages import parsed
from asrkit.config.kinds import AnyFrontend, AnySearch, SearchConfig, usually
from asrkit.config.training import TextConfig
from asrkit.context import FrameRate, Subsampled, rate_of

NumMels = Annotated[int, Field(ge=4, le=512, multiple_of=4)]

# Keys that only model files and checkpoints of earlier versions have, or that no longer count there
GONE = {
    "training": {"average_of", "consistency_ramp", "keep_checkpoints", "parallel", "trackers"},
    "position": {"embedding_layernorm", "dropout"},
    "head": {"prune_range", "delay_penalty", "fast_emit"},
    "text": {"unicode_form"},
}  # fmt: skip


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


class LanguageModelConfig(Section):
    """A language model for decoding. Model files do not contain it, as they name no other files."""

    # path of an ARPA file or a KenLM binary
    path: Annotated[str, BeforeValidator(lambda it: str(it) if isinstance(it, PurePath) else it)]
    units: Literal["words", "tokens"] = "words"
    weight: NumberFromZero = 0.5
    word_bonus: Number = 0.5  # added for each word, or token


class _Decoding(Section):
    lm: LanguageModelConfig


def parse_running(values: Any) -> RunningConfig:
    """Check the part of the configuration in a model file or an export that running it reads."""
    return parsed(RunningConfig, without_gone(values))


def parse_search(value: Any) -> SearchConfig:
    """Check a search given by a kind, or by a dict of a kind and its options."""
    return parsed(RunningConfig, {"search": value}).search


def parse_language_model(value: Any) -> LanguageModelConfig:
    """Check a language model given by a path, or by a dict of a path and options."""
    return parsed(_Decoding, {"lm": value if isinstance(value, dict) else {"path": value}}).lm


def without_gone(values: Any, name: str = "", depth: int = 3) -> Any:
    """Return a configuration or its section of this name without the keys of GONE."""
    if not isinstance(values, dict) or not depth:
        return values
    kept = {key: value for key, value in values.items() if key not in GONE.get(name, ())}
    return {key: without_gone(value, key, depth - 1) for key, value in kept.items()}
