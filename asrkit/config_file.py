"""A YAML file and overrides as nested dicts, not checked yet for what may be in them."""

from pathlib import Path
from typing import Any

import yaml

from asrkit.errors import UserError


class ConfigError(UserError):
    """A configuration that cannot be used; the message names the key and what would be right."""


class _StrictLoader(yaml.SafeLoader):
    """YAML without code, and without a key that silently loses to a later one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"key {key!r} stands twice{node.start_mark}")
        return super().construct_mapping(node, deep)


def read_values(path: str | Path, overrides: list[str]) -> dict[str, Any]:
    """The sections of a file with `section.key=value` overrides.

    Raises:
        ConfigError: for a missing file, bad YAML, or an override that fits nowhere.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"no configuration file {path}")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _StrictLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold sections such as 'data:', got {values!r}")
    for override in overrides:
        _apply(values, override)
    return values


def _apply(values: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"an override is section.key=value, got {override!r}")
    *sections, name = key.split(".")
    target = values
    for section in sections:
        target = target.setdefault(section, {})
        if not isinstance(target, dict):
            raise ConfigError(f"{section!r} in {override!r} is a value, not a section")
    try:
        target[name] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{override!r}: {error}") from None
