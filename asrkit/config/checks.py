"""Checks of settings whose types and ranges are valid, but not their combination."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from pydantic import BaseModel

from asrkit.config.read_yaml import ConfigError
from asrkit.errors import shown


def distinct(values: list[Any]) -> list[Any]:
    """Return the values; raise ValueError for a repeated value."""
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise ValueError(f"each value must be given once, got {shown(twice)} more than once")
    return values


class Needs(NamedTuple):
    """Metadata of an option that only has an effect with another setting."""

    switch: str  # dotted name
    wanted: str  # value of the switch with which the option has an effect
    is_on: Callable[[Any], bool]  # the configuration -> whether the option has an effect


def needs(switch: str, *values: str, wanted: str = "above 0") -> Needs:
    """Return the need for one of these values, or, without values, for any but 0, none and []."""
    value_of = attrgetter(switch)
    if values:
        return Needs(switch, " or ".join(values), lambda config: value_of(config) in values)
    return Needs(switch, wanted, lambda config: bool(value_of(config)))


def refuse_idle(config: BaseModel, written: set[str], overridden: set[str]) -> None:
    """Reject options that are set and have no effect.

    Args:
        overridden: dotted keys given on the command line. A switch among these keys may turn off
            options that the file sets.
    """
    for option in sorted(written):
        name, _, key = option.partition(".")
        section = getattr(config, name)
        field, value = type(section).model_fields.get(key), getattr(section, key, None)
        if field is None or value == field.default:
            continue
        for need in field.metadata:
            set_off = option in overridden or getattr(need, "switch", "") not in overridden
            if isinstance(need, Needs) and not need.is_on(config) and set_off:
                off = shown(attrgetter(need.switch)(config))
                raise ConfigError(
                    f"'{option}': {shown(value)} has no effect while {need.switch} is {off}; set "
                    f"it to {need.wanted}, or leave {key} at its default {shown(field.default)}"
                )
