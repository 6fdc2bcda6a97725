"""Reading YAML safely: any YAML text, and a YAML file with overrides as unchecked nested dicts."""

from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from asrkit.config.locate import configurations
from asrkit.errors import UserError, printable, reason, shown
from asrkit.registry import refusal

MAX_CHARACTERS = 100_000  # characters of a YAML text; a configuration has some thousands
MAX_NODES = 100_000  # values of a YAML text, with all aliases expanded


class ConfigError(UserError):
    """A configuration that cannot be used; the message names the key and what would be right."""


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that also rejects repeated keys, and texts that aliases make too large."""

    def get_single_node(self) -> yaml.Node | None:
        nodes: list[Any] = [super().get_single_node()]
        for node in nodes:  # the list grows
            if isinstance(node, yaml.CollectionNode):
                nodes += chain(*node.value) if isinstance(node, yaml.MappingNode) else node.value
            if len(nodes) > MAX_NODES:
                raise yaml.YAMLError(f"its aliases stand for {MAX_NODES} values or more")
        return nodes[0]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    raise yaml.MarkedYAMLError(
                        problem=f"key {shown(key.value)} is repeated", problem_mark=key.start_mark
                    )
                keys.add(key.value)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str, longest: int = MAX_CHARACTERS) -> Any:
    """Parse a YAML text of at most `longest` characters: dicts, lists, numbers, dates."""
    if len(text) > longest:
        raise ConfigError(f"it has more than {longest} characters")
    try:
        return yaml.load(text, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(printable(error.problem or error.context or "") + place) from None
    except RecursionError:
        raise ConfigError("nested too deeply") from None
    except Exception as error:  # of the loader, or of int(), datetime() and others for a value
        raise ConfigError(f"a value cannot be read: {reason(error)}") from None


def read_yaml(path: str | Path) -> Any:
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"no file {shown(path)}")
    try:
        with path.open(encoding="utf-8") as file:
            return parse_yaml(file.read(MAX_CHARACTERS + 1))
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shown(path)} is not YAML: {error}") from None


def read_values(path: str | Path, overrides: list[str]) -> dict[str, Any]:
    """Read the sections of a YAML file, or of asrkit's own of this name, and apply overrides."""
    path = find_config(path)
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise ConfigError(f"{shown(path)} must hold sections such as 'data:', got {shown(values)}")
    for override in overrides:
        _apply(values, override)
    return values


def find_config(config: str | Path) -> Path:
    """Return the file at a path or, without one, asrkit's own configuration of this name."""
    path, known = Path(config), configurations()
    if path.is_file():
        return path
    if str(config) not in known:
        problem = f"no configuration file {shown(path)}; a name {refusal(str(config), known)}"
        raise ConfigError(problem)
    return known[str(config)]


def _apply(values: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"an override must be section.key=value, got {shown(override)}")
    *sections, name = key.split(".")
    target = values
    for section in sections:
        target = target.setdefault(section, {})
        if not isinstance(target, dict):
            raise ConfigError(f"{shown(section)} in {shown(override)} is a value, not a section")
    try:
        target[name] = parse_yaml(text)
    except ConfigError as error:
        raise ConfigError(f"{shown(override)}: {error}") from None
