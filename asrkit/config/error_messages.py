"""Error messages of a configuration: each names the key and what would be right."""

import difflib
from collections.abc import Mapping
from itertools import islice
from typing import Any

import pydantic

from asrkit.errors import shown
from asrkit.registry import Kinds, refusal

MOST_LINES = 20  # errors in a message
# Parts of `model` that check their options
SELF_CHECKED = ("position", "subsampling", "head", "frontend")


def explained(
    error: pydantic.ValidationError, keys: list[str], kinds: Mapping[tuple[str, ...], Kinds[Any]]
) -> str:
    """Return the message for pydantic's errors, one per line.

    Args:
        kinds: kinds of each section that has some, by the place of the section.
    """
    first = error.errors()[: MOST_LINES + 1]
    return _some([_explain(each, keys, kinds) for each in first])


def _explain(error: Any, keys: list[str], kinds: Mapping[tuple[str, ...], Any]) -> str:
    loc, kind, given = error["loc"], error["type"], shown(error["input"])
    place = next((place for place in kinds if loc[: len(place)] == place), loc)
    if len(loc) > len(place):
        # pydantic puts the kind between its section and an option; the key does not contain it.
        chosen, loc = loc[len(place)], (*place, *loc[len(place) + 1 :])
        if kind == "extra_forbidden":
            known = ", ".join(kinds[place].options(chosen)) or "none"
            return (
                f"'{'.'.join(place)}': {chosen} has no option {shown(str(loc[-1]))}; it has {known}"
            )
    key = shown(".".join(map(str, loc)))
    if kind == "extra_forbidden":
        inside = error["input"] if isinstance(error["input"], dict) else {}
        names = [(*loc, name) for name in islice(inside, MOST_LINES + 1)] or [loc]
        return _some([_unknown(".".join(map(str, each)), keys) for each in names])
    if kind == "missing":
        return f"missing key {key}"
    if kind == "union_tag_not_found":
        return f"missing key {shown('.'.join(loc) + '.kind')}"
    if kind == "union_tag_invalid":
        return f"'{'.'.join(loc)}.kind': {refusal(error['ctx']['tag'], kinds[loc])}"
    if kind == "model_attributes_type":
        return f"{key}: write a kind, or {{kind: …}} with its options, got {given}"
    message = error["msg"].removeprefix("Value error, ")
    if kind in SELF_CHECKED:
        return f"'{'.'.join((*loc, kind))}': {message}"
    if not loc:
        return message
    if kind == "value_error":
        return f"{key}: {message}"
    return f"{key}: {message[0].lower()}{message[1:]}, got {given}"


def _some(lines: list[str]) -> str:
    """Return the first lines, and a note if there are more."""
    return "\n".join(lines[:MOST_LINES] + ["and more of the kind"] * (len(lines) > MOST_LINES))


def _unknown(key: str, keys: list[str]) -> str:
    nearest = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
    return f"unknown key {shown(key)}" + (f"; did you mean '{nearest[0]}'?" if nearest else "")
