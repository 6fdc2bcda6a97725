"""Error messages of a configuration: each names the key and what would be right."""

import difflib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import pydantic

from asrkit.errors import shown
from asrkit.registry import Kinds, refusal

MOST_LINES = 20  # errors in a message


def explained(
    error: pydantic.ValidationError, keys: list[str], kinds: Mapping[tuple[str, ...], Kinds[Any]]
) -> str:
    """Return the message for pydantic's errors, one per line.

    Args:
        kinds: kinds of each section that has some, by the place of the section.
    """
    every = (line for each in error.errors() for line in _lines(each, keys, kinds))
    first = list(islice(every, MOST_LINES + 1))
    return "\n".join(first[:MOST_LINES] + ["and more of the kind"] * (len(first) > MOST_LINES))


def _lines(error: Any, keys: list[str], kinds: Mapping[tuple[str, ...], Any]) -> Iterator[str]:
    loc, kind, value = error["loc"], error["type"], error["input"]
    place = next((place for place in kinds if loc[: len(place)] == place), loc)
    chosen = ""
    if len(loc) > len(place):
        # pydantic puts the kind between its section and an option; the key does not contain it.
        chosen, loc = loc[len(place)], (*place, *loc[len(place) + 1 :])
    key, message = ".".join(map(str, loc)), error["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden" and chosen:
        known = ", ".join(kinds[place].options(chosen)) or "none"
        option = shown(str(loc[-1]))
        yield f"'{'.'.join(place)}': {chosen} has no option {option}; it has {known}"
    elif kind == "extra_forbidden":
        inside = value if isinstance(value, dict) else {}
        for unknown in [f"{key}.{name}" for name in inside] or [key]:
            near = difflib.get_close_matches(unknown, keys, n=1, cutoff=0.5)
            yield f"unknown key {shown(unknown)}" + "".join(f"; did you mean {n!r}?" for n in near)
    elif kind == "missing":
        yield f"missing key {shown(key)}"
    elif kind == "union_tag_invalid":
        yield f"'{key}.kind': {refusal(error['ctx']['tag'], kinds[loc])}"
    elif kind == "model_attributes_type":
        yield f"{shown(key)}: write a kind, or {{kind: …}} with its options, got {shown(value)}"
    elif kind == "value_error":
        yield f"{shown(key)}: {message}"
    else:
        yield f"{shown(key)}: {message[0].lower()}{message[1:]}, got {shown(value)}"
