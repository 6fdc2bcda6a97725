"""The schema of settings, and reading settings from YAML."""

from asrkit.config.bounds import MOST_FRAMES
from asrkit.config.inherited import filled
from asrkit.config.kinds import SearchConfig
from asrkit.config.model import ContextConfig, ModelConfig
from asrkit.config.read_yaml import ConfigError
from asrkit.config.schema import (
    Config,
    LanguageModelConfig,
    check_written,
    load_config,
    parse_config,
    parse_language_model,
    parse_record,
    parse_search,
)
from asrkit.config.training import AugmentationConfig, DataConfig, TextConfig, TrainingConfig

__all__ = [
    "MOST_FRAMES",
    "AugmentationConfig",
    "Config",
    "ConfigError",
    "ContextConfig",
    "DataConfig",
    "LanguageModelConfig",
    "ModelConfig",
    "SearchConfig",
    "TextConfig",
    "TrainingConfig",
    "check_written",
    "filled",
    "load_config",
    "parse_config",
    "parse_language_model",
    "parse_record",
    "parse_search",
]
