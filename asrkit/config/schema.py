"""The schema of a configuration: its sections, keys, types, limits and defaults.

An unknown key, a wrong type or an impossible combination is a ConfigError that names the key, what
was expected and the nearest key. The files of the sections have all defaults, except the options
of kinds, which are arguments of their classes. docs/configuration.md is generated from them.
"""

from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import BaseModel, BeforeValidator

from asrkit.config.bounds import Number, NumberFromZero, Section
from asrkit.config.checks import refuse_idle
from asrkit.config.error_messages import explained
from asrkit.config.kinds import KINDS, SEARCHES, AnySearch, SearchConfig
from asrkit.config.model import ContextConfig, ModelConfig
from asrkit.config.read_yaml import ConfigError, read_values
from asrkit.config.training import AugmentationConfig, DataConfig, TextConfig, TrainingConfig

# Keys in model files of earlier versions, and a tracker
GONE_TRAINING = {"average_of", "consistency_ramp", "keep_checkpoints", "parallel"}
GONE_HEAD = {"prune_range", "delay_penalty", "fast_emit"}
GONE_TRACKER = "trackio"


class Config(Section):
    data: DataConfig
    augmentation: AugmentationConfig = AugmentationConfig()
    text: TextConfig = TextConfig()
    model: ModelConfig = ModelConfig()
    context: ContextConfig = ContextConfig()
    search: AnySearch = SEARCHES["greedy"](kind="greedy")
    """Default search of decoding, a kind with its options."""
    training: TrainingConfig


def refuse_impossible(config: Config) -> None:
    """Reject settings that do not fit each other."""
    data, masks, training = config.data, config.augmentation, config.training
    mels, layers, head = config.model.num_mels, config.model.num_layers, config.model.head
    deep = [layer for layer in training.intermediate_layers if layer >= layers]
    no_ctc = getattr(head, "ctc_weight", 1.0) == 0.0
    tunes = training.start_from is not None  # else `refuse_idle` reports training.keep
    for is_wrong, problem in [
        (
            data.min_seconds > data.max_seconds,
            f"data.min_seconds {data.min_seconds:g} must be at most data.max_seconds "
            f"{data.max_seconds:g}",
        ),
        (
            masks.spec_probability > 0.0 and masks.spec_frequency_bins > mels,
            f"augmentation.spec_frequency_bins {masks.spec_frequency_bins} must be at most "
            f"model.num_mels {mels}",
        ),
        (
            not config.context.chunk_sizes
            and (config.context.full_share < 1.0 or training.views == "full_and_chunks"),
            "context.chunk_sizes must have at least one value unless context.full_share is 1 and "
            "training.views has no chunks, got []",
        ),
        (
            config.text.written and config.text.case != "keep",
            f"text.written needs text.case keep, got {config.text.case}",
        ),
        (deep, f"training.intermediate_layers {deep} must lie below model.num_layers {layers}"),
        (
            no_ctc and (training.intermediate_layers or training.views != "one"),
            "training.intermediate_layers and training.views need the CTC layer of a transducer: "
            "model.head.ctc_weight must be above 0, got 0",
        ),
        (
            tunes and training.keep == "replay" and not data.replay,
            "training.keep replay needs data.replay: recordings of the first model",
        ),
        (
            tunes and training.keep == "adapters" and not training.keep_labels,
            "training.keep adapters needs training.keep_labels true, got false: leave "
            "text.tokenizer and keep_labels out",
        ),
    ]:
        if is_wrong:
            raise ConfigError(problem)


def text_of(path: object) -> object:
    """Return a path as text; anything else unchanged."""
    return str(path) if isinstance(path, PurePath) else path


class LanguageModelConfig(Section):
    """A language model for decoding. Model files do not contain it, as they name no other files."""

    path: Annotated[str, BeforeValidator(text_of)]  # path of an ARPA file or a KenLM binary
    units: Literal["words", "tokens"] = "words"
    weight: NumberFromZero = 0.5
    word_bonus: Number = 0.5  # added for each word, or token


AnyLanguageModel = Annotated[
    LanguageModelConfig,
    BeforeValidator(lambda value: {"path": value} if isinstance(value, str | PurePath) else value),
]


class _Decoding(Section):
    """Settings of decoding, which are parsed one by one."""

    search: AnySearch = SEARCHES["greedy"](kind="greedy")
    lm: AnyLanguageModel = LanguageModelConfig(path="")


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
    config = _parse(Config, values)
    refuse_impossible(config)
    return config


def parse_record(values: dict[str, Any]) -> Config:
    """Check the configuration in a model file, but not what only its training needed."""
    values = without(values, "training", GONE_TRAINING)
    if isinstance(model := values.get("model"), dict):
        values = values | {"model": without(model, "head", GONE_HEAD)}
    training = values.get("training")
    if isinstance(training, dict) and isinstance(trackers := training.get("trackers"), list):
        known = [each for each in trackers if each != GONE_TRACKER]
        values = values | {"training": training | {"trackers": known}}
    return _parse(Config, values)


def without(values: dict[str, Any], name: str, gone: set[str]) -> dict[str, Any]:
    """Return values whose section `name` lacks these keys."""
    section = values.get(name)
    if not isinstance(section, dict):
        return values
    return values | {name: {key: value for key, value in section.items() if key not in gone}}


def parse_search(value: Any) -> SearchConfig:
    """Check a search given by a kind, or by a dict of a kind and its options."""
    return _parse(_Decoding, {"search": value}).search


def parse_language_model(value: Any) -> LanguageModelConfig:
    """Check a language model given by a path, or by a dict of a path and options."""
    return _parse(_Decoding, {"lm": value}).lm


def _parse(section: type[Parsed], values: dict[str, Any]) -> Parsed:
    try:
        return section.model_validate(values)
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
