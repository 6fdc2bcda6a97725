"""Checks of the messages that clients send: JSON, base64, and the values of fields."""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from asrkit.audio.samples import MAX_RATE, MIN_RATE
from asrkit.errors import UserError, printable, shown

Value = TypeVar("Value")
Name = Annotated[str, Field(max_length=200)]
Rate = Annotated[int, Field(ge=MIN_RATE, le=MAX_RATE)]  # samples a second
MOST_NAMED = 5  # fields in a warning


def object_of(text: str | bytes, expected: str = "a JSON object") -> dict[str, Any]:
    """Parse a JSON object.

    Args:
        text: JSON.
        expected: description of a valid message, for the error.

    Raises:
        UserError: if `text` is not a JSON object.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UserError(f"expected {expected}, got {shown(text, 60)}")
    return value


def checked(validate: Callable[[Any], Value], value: object, place: str = "") -> Value:
    """Return a value as `validate` of a pydantic type returns it.

    Args:
        validate: method of a model or of a type adapter.
        value: value to check.
        place: place of the value in the message, for the error.

    Raises:
        UserError: for the first invalid field.
    """
    try:
        return validate(value)
    except ValidationError as error:
        raise UserError(place + problem(error)) from None


def problem(error: ValidationError) -> str:
    """Return a problem of a message, in one line."""
    # Each type of a union has a problem. The one deepest inside tells most, such as "should have at
    # least 1 character" and not "should be an object".
    problems = error.errors(include_url=False, include_input=False)
    deepest = max(reversed(problems), key=lambda each: len(each["loc"]))
    place = ".".join(map(str, deepest["loc"])) or "the message"
    return printable(f"{place}: {deepest['msg']}"[:200])


def unused(given: Mapping[str, Any], known: BaseModel, place: str = "") -> Iterator[str]:
    """Yield the places of fields that a client has set and that a model does not have."""
    for name, value in given.items():
        if name not in type(known).model_fields:
            yield from [] if value is None else [place + name]
        elif isinstance(part := getattr(known, name), BaseModel):
            yield from unused(value, part, f"{place}{name}.")


def without_effect(names: Iterable[str]) -> str:
    """Return the warning about fields of a client that have no effect, or ""."""
    fields = [*names]
    shown_names = ", ".join(shown(each, 60)[1:-1] for each in fields[:MOST_NAMED])
    more = f" and {len(fields) - MOST_NAMED} more" if len(fields) > MOST_NAMED else ""
    return f"no effect here: {shown_names}{more}" if fields else ""


def bytes_of(text: str, field: str) -> bytes:
    """Return the bytes of a field in base64, which may have line ends, as MIME writes it.

    Raises:
        UserError: if the field is not in base64.
    """
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise UserError(f"{field}: expected base64") from None


def phrases_of(*prompts: str) -> list[str]:
    """Return the phrases of prompts, which commas separate."""
    return [each for each in map(str.strip, ",".join(prompts).split(",")) if each]
