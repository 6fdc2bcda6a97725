"""The schema of a configuration: its sections, keys, types, limits and defaults.

An unknown key, a wrong type or an impossible combination is a ConfigError that names the key, what
was expected and the nearest key. The files of the sections have all defaults, except the options
of kinds, which are arguments of their classes. docs/configuration.md is generated from them.
"""

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import BaseModel, BeforeValidator

from asrkit.config.bounds import Number, NumberFromZero, Section
from asrkit.config.checks import refuse_idle
from asrkit.config.error_messages import explained
from asrkit.config.kinds import KINDS, AnySearch, SearchConfig, usually
from asrkit.config.model import CHUNKS, ContextConfig, ModelConfig
from asrkit.config.read_yaml import ConfigError, read_values
from asrkit.config.training import AugmentationConfig, DataConfig, TextConfig, TrainingConfig

# Keys that only model files and checkpoints of earlier versions have, or that no longer count there
GONE = {
    "training": {
        "average_of", "consistency_ramp", "keep_checkpoints", "parallel", "trackers",
    },
    "position": {"embedding_layernorm", "dropout"},
    "head": {"prune_range", "delay_penalty", "fast_emit"},
    "text": {"unicode_form"},
}  # fmt: skip


class Config(Section):
    data: DataConfig
    augmentation: AugmentationConfig = AugmentationConfig()
    text: TextConfig = TextConfig()
    model: ModelConfig = ModelConfig()
    context: ContextConfig = ContextConfig()
    search: AnySearch = usually("greedy")
    """Default search of decoding, a kind with its options."""
    training: TrainingConfig


class LanguageModelConfig(Section):
    """A language model for decoding. Model files do not contain it, as they name no other files."""

    # path of an ARPA file or a KenLM binary
    path: Annotated[str, BeforeValidator(lambda it: str(it) if isinstance(it, PurePath) else it)]
    units: Literal["words", "tokens"] = "words"
    weight: NumberFromZero = 0.5
    word_bonus: Number = 0.5  # added for each word, or token


class _Decoding(Section):
    """Settings of decoding, which are parsed one by one."""

    search: AnySearch = usually("greedy")
    lm: LanguageModelConfig = LanguageModelConfig(path="")


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
    for problem in impossible(config):
        raise ConfigError(problem)
    return config


def impossible(config: Config) -> Iterator[str]:
    """Yield what is wrong with settings that do not fit each other."""
    training, layers = config.training, config.model.num_layers
    if config.text.written and config.text.case != "keep":
        yield f"text.written needs text.case keep, got {config.text.case}"
    if not config.context.chunk_sizes and CHUNKS.is_on(config):
        yield (
            "context.chunk_sizes must have at least one value unless context.full_share is 1 and "
            "training.views has no chunks, got []"
        )
    if deep := [layer for layer in training.intermediate_layers if layer >= layers]:
        yield f"training.intermediate_layers {deep} must lie below model.num_layers {layers}"
    needs_ctc = training.intermediate_layers or training.views != "one"
    if needs_ctc and getattr(config.model.head, "ctc_weight", 1.0) == 0.0:
        yield (
            "training.intermediate_layers and training.views need the CTC layer of a transducer: "
            "model.head.ctc_weight must be above 0, got 0"
        )
    if training.start_from is None:  # `refuse_idle` reports training.keep
        return
    if training.keep == "replay" and not config.data.replay:
        yield "training.keep replay needs data.replay: recordings of the first model"
    if training.keep == "adapters" and not training.keep_labels:
        yield (
            "training.keep adapters needs training.keep_labels true, got false: leave "
            "text.tokenizer and keep_labels out"
        )


def parse_record(values: Any) -> Config:
    """Check the configuration in a model file, but not what only its training needed."""
    values = without_gone(values)
    if isinstance(values, dict) and "model" in values:
        values["model"] = without_gone(values["model"])
    return _parse(Config, values)


def without_gone(sections: Any) -> Any:
    """Return sections without the keys of GONE."""
    return {
        name: {key: section[key] for key in section if key not in GONE.get(name, ())}
        if isinstance(section, dict) else section
        for name, section in sections.items()
    } if isinstance(sections, dict) else sections  # fmt: skip


def parse_search(value: Any) -> SearchConfig:
    """Check a search given by a kind, or by a dict of a kind and its options."""
    return _parse(_Decoding, {"search": value}).search


def parse_language_model(value: Any) -> LanguageModelConfig:
    """Check a language model given by a path, or by a dict of a path and options."""
    return _parse(_Decoding, {"lm": value if isinstance(value, dict) else {"path": value}}).lm


def _parse(section: type[Parsed], values: Any) -> Parsed:
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
