"""Error messages of a configuration: each names the key and what would be right."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import pydantic
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from asrkit.config.bounds import Section
from asrkit.config.kinds import OneOf
from asrkit.config.read_yaml import ConfigError
from asrkit.errors import shown
from asrkit.registry import Kinds, refusal

MOST_LINES = 20  # errors in a message

Parsed = TypeVar("Parsed", bound=Section)
Place = tuple[str, ...]  # of a key in the sections


def parsed(section: type[Parsed], values: Any) -> Parsed:
    """Return a section with these values, checked; see `explained`.

    Raises:
        ConfigError: for values that do not fit.
    """
    try:
        return section.model_validate(values)
    except pydantic.ValidationError as error:
        raise ConfigError(explained(error, dict(_fields(section)))) from None


def _fields(section: type[BaseModel], place: Place = ()) -> Iterator[tuple[Place, FieldInfo]]:
    """Yield the places and the fields of all keys, including sections."""
    for name, field in section.model_fields.items():
        yield (*place, name), field
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _fields(field.annotation, (*place, name))


def explained(error: pydantic.ValidationError, fields: Mapping[Place, FieldInfo]) -> str:
    """Return the message for pydantic's errors, one per line.

    Args:
        fields: known keys, for hints.
    """
    errors, keys = error.errors(include_url=False), [*map(".".join, fields)]
    kinds = {place: each.kinds for place, field in fields.items()
             for each in field.metadata if isinstance(each, OneOf)}  # fmt: skip
    lines = [_line(each, keys, kinds) for each in errors[:MOST_LINES]]
    return "\n".join(lines + ["and more of the kind"] * (len(errors) > MOST_LINES))


def _line(error: Any, keys: list[str], kinds: Mapping[Place, Kinds[Any]]) -> str:
    loc, kind, value = error["loc"], error["type"], error["input"]
    place = next((place for place in kinds if loc[: len(place)] == place), loc)
    # pydantic puts the kind between its section and an option; the key does not contain it.
    key = ".".join(map(str, (*place, *loc[len(place) + 1 :])))
    message = error["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden" and loc != place:
        known = ", ".join(kinds[place].options(loc[len(place)])) or "none"
        option = shown(str(loc[-1]))
        return f"'{'.'.join(place)}': {loc[len(place)]} has no option {option}; it has {known}"
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
        return f"unknown key {shown(key)}" + "".join(f"; did you mean {n!r}?" for n in near)
    if kind == "missing":
        return f"missing key {shown(key)}"
    if kind == "union_tag_invalid":
        return f"'{key}.kind': {refusal(error['ctx']['tag'], kinds[loc])}"
    if kind == "value_error":
        return f"{shown(key)}: {message}"
    return f"{shown(key)}: {message[0].lower()}{message[1:]}, got {shown(value)}"
