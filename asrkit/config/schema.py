"""The schema of a configuration: its sections, keys, types, limits and defaults.

An unknown key, a wrong type or an impossible combination is a ConfigError that names the key, what
was expected and the nearest key. The files of the sections have all defaults, except the options
of kinds, which are arguments of their classes. docs/configuration.md is generated from them.
"""

from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import BaseModel, BeforeValidator, ValidationInfo, model_validator

from asrkit.config.bounds import Number, NumberFromZero, Section
from asrkit.config.checks import RECORD, refuse_idle
from asrkit.config.error_messages import explained
from asrkit.config.kinds import KINDS, SEARCHES, AnySearch, SearchConfig
from asrkit.config.model import ContextConfig, ModelConfig
from asrkit.config.read_yaml import ConfigError, read_values
from asrkit.config.training import AugmentationConfig, DataConfig, TextConfig, TrainingConfig


class Config(Section):
    data: DataConfig
    augmentation: AugmentationConfig = AugmentationConfig()
    text: TextConfig = TextConfig()
    model: ModelConfig = ModelConfig()
    context: ContextConfig = ContextConfig()
    search: AnySearch = SEARCHES["greedy"](kind="greedy")
    """Default search of decoding, a kind with its options."""
    training: TrainingConfig

    @model_validator(mode="after")
    def _fits(self, info: ValidationInfo) -> "Config":
        if self.data.min_seconds > self.data.max_seconds and info.context != RECORD:
            raise ValueError(
                f"data.min_seconds {self.data.min_seconds:g} must be at most data.max_seconds "
                f"{self.data.max_seconds:g}"
            )
        bins = self.augmentation.spec_frequency_bins
        masked = info.context != RECORD and self.augmentation.spec_probability > 0.0
        if masked and bins > self.model.num_mels:
            raise ValueError(
                f"augmentation.spec_frequency_bins {bins} must be at most model.num_mels "
                f"{self.model.num_mels}"
            )
        if self.training.views == "full_and_chunks" and not self.context.chunk_sizes:
            raise ValueError("training.views full_and_chunks needs context.chunk_sizes")
        deep = [i for i in self.training.intermediate_layers if i >= self.model.num_layers]
        if deep:
            raise ValueError(
                f"training.intermediate_layers {deep} must lie below model.num_layers "
                f"{self.model.num_layers}"
            )
        self._check_head()
        if info.context != RECORD:
            self._check_keep()
        return self

    def _check_keep(self) -> None:
        """Raise ValueError for settings with which `training.keep` has no data or cannot train."""
        keep = self.training.keep
        if self.training.start_from is None:  # `refuse_idle` reports it
            return
        if keep == "replay" and not self.data.replay:
            raise ValueError(
                "training.keep replay needs data.replay: recordings of the first model"
            )
        if keep == "adapters" and not self.training.keep_labels:
            raise ValueError(
                "training.keep adapters needs training.keep_labels true, got false: leave "
                "text.tokenizer and keep_labels out"
            )

    def _check_head(self) -> None:
        """Raise ValueError for a loss that the head does not have."""
        head = self.model.head.model_dump()
        if head["kind"] != "transducer" or head["ctc_weight"] > 0.0:
            return
        if self.training.intermediate_layers or self.training.views != "one":
            raise ValueError(
                "training.intermediate_layers and training.views need the CTC layer of a "
                f"transducer: model.head.ctc_weight must be above 0, got {head['ctc_weight']:g}"
            )


def text_of(path: object) -> object:
    """Return a path as text; anything else unchanged."""
    return str(path) if isinstance(path, PurePath) else path


class LanguageModelConfig(Section):
    """A language model for decoding. Model files do not contain it, as they name no other files."""

    path: Annotated[str, BeforeValidator(text_of)]  # path of an ARPA file or a KenLM binary
    units: Literal["words", "tokens"] = "words"
    weight: NumberFromZero = 0.5
    word_bonus: Number = 0.5  # added for each word, or token


class _Search(Section):
    search: AnySearch


class _LanguageModel(Section):
    lm: Annotated[
        LanguageModelConfig,
        BeforeValidator(
            lambda value: {"path": value} if isinstance(value, str | PurePath) else value
        ),
    ]


Parsed = TypeVar("Parsed", bound=Section)


def load_config(path: str | Path, overrides: list[str] | None = None) -> Config:
    """Load the configuration in a YAML file or of a name in conf/, with overrides."""
    overrides = overrides or []
    return check_written(read_values(path, overrides), overrides)


def check_written(
    values: dict[str, Any], overrides: list[str], filled: dict[str, Any] | None = None
) -> Config:
    """Check a configuration, and reject written options that have no effect.

    Args:
        values: nested dicts that the user wrote, overrides included.
        filled: `values` with settings from elsewhere, which may be without effect.
    """
    config = parse_config(values if filled is None else filled)
    written = {
        f"{name}.{key}"
        for name, section in values.items()
        for key in (section if isinstance(section, dict) else ())
    }
    refuse_idle(config, written, {override.partition("=")[0] for override in overrides})
    return config


def parse_config(values: dict[str, Any]) -> Config:
    return _parse(Config, values)


def parse_record(values: dict[str, Any]) -> Config:
    """Check the configuration in a model file, but only for what the model needs."""
    return _parse(Config, values, RECORD)


def parse_search(value: Any) -> SearchConfig:
    """Check a search given by a kind, or by a dict of a kind and its options."""
    return _parse(_Search, {"search": value}).search


def parse_language_model(value: Any) -> LanguageModelConfig:
    """Check a language model given by a path, or by a dict of a path and options."""
    return _parse(_LanguageModel, {"lm": value}).lm


def _parse(
    section: type[Parsed], values: dict[str, Any], context: dict[str, bool] | None = None
) -> Parsed:
    try:
        return section.model_validate(values, context=context)
    except pydantic.ValidationError as error:
        raise ConfigError(explained(error, _keys(Config), KINDS)) from None


def _keys(section: type[BaseModel], prefix: str = "") -> list[str]:
    """Return all dotted keys, including sections."""
    keys = []
    for name, field in section.model_fields.items():
        keys.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            keys += _keys(field.annotation, f"{prefix}{name}.")
    return keys
