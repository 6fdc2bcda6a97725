"""The schema of settings, and reading settings from YAML."""

from asrkit.config.schema import (
    MOST_FRAMES,
    AugmentationConfig,
    Config,
    ConfigError,
    ContextConfig,
    DataConfig,
    LanguageModelConfig,
    ModelConfig,
    SearchConfig,
    TextConfig,
    TrainingConfig,
    load_config,
    parse_config,
    parse_language_model,
    parse_record,
    parse_search,
)

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
    "load_config",
    "parse_config",
    "parse_language_model",
    "parse_record",
    "parse_search",
]
